// Embeddings: how alike lines are, by the cosine of their embeddings.

const MOST_LINES = 12;

const compare = {
  send: $("compare-send"),
  status: $("compare-status"),
  abort: null,
  sent: null,

  enable() {
    this.send.disabled = this.abort !== null || !isOpen();
  },

  requestNow() {
    const text = $("lines").value || $("lines").placeholder;
    const input = text.split("\n").filter((line) => line.trim()).slice(0, MOST_LINES);
    return { path: "v1/embeddings", body: { model, input } };
  },
};

/** A table of all lines beside all: 1 is the same direction, 0 says nothing. */
function likenessOf(lines, vectors) {
  const numbers = lines.map((_, index) => el("th", { scope: "col" }, `${index + 1}`));
  const rows = lines.map((line, index) => {
    const cells = vectors.map((other) => {
      const cosine = vectors[index].reduce((sum, value, place) => sum + value * other[place], 0);
      const cell = el("td", {}, cosine.toFixed(2));
      cell.style.setProperty("--like", `${Math.max(0, 60 * cosine)}%`);
      return cell;
    });
    return el("tr", {}, el("th", { scope: "row" }, `${index + 1} ${line}`), ...cells);
  });
  const head = el("tr", {}, el("td", {}), ...numbers);
  return el("table", { class: "likeness" }, el("thead", {}, head), el("tbody", {}, ...rows));
}

$("compare-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (compare.send.disabled) return;
  const request = compare.requestNow();
  compare.abort = new AbortController();
  compare.sent = request;
  compare.enable();
  compare.status.classList.remove("failed");
  say(compare.status, "sent");
  const began = performance.now();
  try {
    const answer = await (await ask(request.path, { body: request.body })).json();
    const vectors = answer.data.map((each) => each.embedding);
    $("likeness").replaceChildren(likenessOf(request.body.input, vectors));
    const took = seconds((performance.now() - began) / 1000);
    const read = plural(answer.usage.prompt_tokens, "token");
    say(compare.status, `${plural(vectors.length, "embedding")} of ${vectors[0].length} numbers · ${read} · ${took}`);
  } catch (error) {
    complain(compare.status, error);
  } finally {
    compare.abort = null;
    compare.enable();
  }
});
$("lines").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("compare-form").requestSubmit();
});
$("lines").addEventListener("input", () => showCode());

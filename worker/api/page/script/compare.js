// Embeddings: how alike lines are, by the cosine of their embeddings.

const MOST_LINES = 12;

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

const compare = new Single(
  "compare",
  () => {
    const text = $("lines").value || $("lines").placeholder;
    const input = text.split("\n").filter((line) => line.trim()).slice(0, MOST_LINES);
    return { path: "v1/embeddings", body: { model, input } };
  },
  (answer, request) => {
    const vectors = answer.data.map((each) => each.embedding);
    $("likeness").replaceChildren(likenessOf(request.body.input, vectors));
    const read = plural(answer.usage.prompt_tokens, "token");
    return `${plural(vectors.length, "embedding")} of ${vectors[0].length} numbers · ${read}`;
  },
);

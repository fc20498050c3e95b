// The requests that run, wait or have ended.

const MAX_ROWS = 50;
let rows = new Map(); // id -> its elements; kept from event to event, so that focus stays

function showRequests(running, ended) {
  const before = rows;
  rows = new Map();
  for (const request of running.slice(0, MAX_ROWS)) {
    // Clients may give an id twice.
    const row = before.get(request.id)?.shift() ?? $("requests").appendChild(newRow(request));
    rows.set(request.id, [...(rows.get(request.id) ?? []), row]);
    showRow(row, request);
  }
  for (const row of [...before.values()].flat()) row.remove();
  $("no-requests").hidden = running.length > 0;
  $("more-requests").hidden = running.length <= MAX_ROWS;
  say($("more-requests"), `and ${count(running.length - MAX_ROWS)} more`);
  showEnded(ended);
}

/** "chat/completions" of "POST /v1/chat/completions" */
const routeOf = (request) => request.route.replace(/^\w+ \/(v1\/|api\/)?/, "");

function newRow(request) {
  const cancel = el("button", { type: "button", "aria-label": `Cancel ${request.id}` }, "Cancel");
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    try {
      await ask(`v1/requests/${encodeURIComponent(request.id)}/cancel`, { body: {} });
    } catch (error) {
      if (error.status !== 404) cancel.disabled = false; // 404: it has ended meanwhile
    }
  });
  const name = request.correlation_id ?? request.id;
  const head = el("div", {}, el("b", {}, routeOf(request)), el("code", { title: name }, name));
  head.append(cancel);
  const cached = el("i", { "data-part": "cached" });
  const bar = el("div", { class: "stack" }, cached, el("i", { "data-part": "live" }));
  return el("li", { class: "request" }, head, bar, el("p", { class: "dim" }));
}

function showRow(row, request) {
  const [, bar, text] = row.children;
  const whole = Math.max(1, request.prompt_tokens);
  row.dataset.state = request.state;
  if (request.state === "writing") {
    fill(bar, 0, share(request.generated_tokens, request.max_tokens ?? 0));
  } else {
    const cached = Math.min(request.cached_tokens, request.read_tokens);
    fill(bar, cached / whole, share(request.read_tokens - cached, whole));
  }
  say(text, doingOf(request));
}

function doingOf(request) {
  const parts = [];
  if (request.state === "waiting") {
    parts.push(`waiting for ${seconds(request.wait_s)}`);
    parts.push(request.sequences ? plural(request.prompt_tokens, "token") + " to process" : "being prepared");
  } else if (request.state === "reading") {
    parts.push(`processing ${count(request.read_tokens)} of ${plural(request.prompt_tokens, "token")}`);
  } else {
    const rate = request.tokens_per_second;
    parts.push(rate === null ? "generating" : `generating ${speed(rate)} tok/s`);
    const most = request.max_tokens === null ? "" : ` of ${count(request.max_tokens)}`;
    parts.push(`${count(request.generated_tokens)}${most} tokens`);
  }
  if (request.sequences > 1) parts.push(`${request.sequences} answers`);
  if (request.cached_tokens) parts.push(`${count(request.cached_tokens)} cached`);
  if (request.state !== "waiting" && request.wait_s >= 0.1) {
    parts.push(`waited ${seconds(request.wait_s)}`);
  }
  return parts.join(" · ");
}

function showEnded(ended) {
  if (!$("ended-part").open) return;
  $("ended").replaceChildren(
    ...ended.map((request) => {
      const rate = request.tokens_per_second;
      const text = [
        `${count(request.prompt_tokens)} prompt, ${count(request.generated_tokens)} generated`,
        ...(rate === null ? [] : [`${speed(rate)} tok/s`]),
        seconds(request.duration_s),
        ...(request.cache_reason ? [request.cache_reason.replaceAll("_", " ")] : []),
      ];
      const head = el("div", { title: request.id }, el("b", {}, routeOf(request)), request.outcome);
      return el("li", {}, head, el("p", { class: "dim" }, text.join(" · ")));
    }),
  );
}

// One request that writes: its tokens, its status, its end.

/** Buttons and a status line, and one request at a time. */
class Generator {
  /** name: of the elements' ids; requestNow: path and body of what would be sent now. */
  constructor(name, requestNow, isBrief = false) {
    this.isBrief = isBrief; // the figures stand elsewhere
    this.send = $(`${name}-send`);
    this.halt = $(`${name}-stop`);
    this.status = $(`${name}-status`);
    this.requestNow = requestNow;
    this.sent = null; // the last request, as it was sent
    this.abort = null;
    this.halt.addEventListener("click", () => this.abort?.abort());
  }

  enable() {
    this.send.disabled = this.abort !== null || !isOpen();
    this.halt.disabled = this.abort === null;
  }

  /**
   * Sends the request; `take` gets each event's choice and its scores.
   * Returns whether anything was answered, and the figures of the answer.
   */
  async run(node, take) {
    const request = this.requestNow();
    this.sent = request;
    this.abort = new AbortController();
    this.enable();
    showCode();
    this.status.classList.remove("failed");
    say(this.status, "sent");
    this.status.setAttribute("aria-live", "off"); // each token would be read out
    node.setAttribute("aria-busy", "true");
    const seen = { tokens: 0, began: performance.now(), first: null, finish: null };
    let stats = null;
    try {
      const options = { body: request.body, signal: this.abort.signal };
      for await (const event of events(await ask(request.path, options))) {
        this.#take(event, seen, take);
        keepAtEnd(node);
      }
      if (seen.finish === null) throw new Lost();
      stats = figuresOf(seen);
      const end = ENDS[seen.finish] ?? `ended: ${seen.finish}`;
      this.#conclude(this.isBrief ? end : `${end} · ${stats}`);
    } catch (error) {
      stats = `stopped after ${plural(seen.tokens, "token")}`;
      this.#conclude(stats);
      if (error.name !== "AbortError") complain(this.status, error);
    } finally {
      this.abort = null;
      node.removeAttribute("aria-busy");
      this.enable();
    }
    return { isAnswered: seen.tokens > 0 || seen.finish !== null, stats };
  }

  /** The last words of the status, which are read out. */
  #conclude(text) {
    this.status.removeAttribute("aria-live");
    say(this.status, text);
  }

  #take(event, seen, take) {
    if (event.error) throw new Refusal(0, event.error);
    if (event.truncated) seen.truncated = event.truncated.messages;
    if (event.usage) seen.usage = event.usage;
    if (event.timings) seen.timings = event.timings;
    if (event.cache_trace) seen.trace = event.cache_trace;
    if (event.prompt_progress) {
      const { processed, total } = event.prompt_progress;
      return say(this.status, `processing the prompt: ${count(processed)} of ${plural(total, "token")}`);
    }
    const [choice] = event.choices;
    if (!choice) return;
    const scores = readScores(choice.logprobs);
    seen.first ??= performance.now();
    seen.tokens = event.timings?.predicted_n ?? seen.tokens + scores.length;
    seen.finish ??= choice.finish_reason;
    take(choice, scores);
    const rate = (1000 * (seen.tokens - 1)) / (performance.now() - seen.first);
    const shown = seen.tokens > 1 && Number.isFinite(rate) ? ` · ${speed(rate)} tok/s` : "";
    say(this.status, `generating · ${plural(seen.tokens, "token")}${shown}`);
  }
}

const ENDS = {
  stop: "ended by itself",
  length: "ended by the limit",
  tool_calls: "asks for a tool",
};

/** "120 of 900 prompt tokens processed: A date or a time changed in message 0 (system)." */
function whyOf({ why, prompt_tokens, cached_tokens }) {
  const processed = count(prompt_tokens - cached_tokens);
  return `${processed} of ${plural(prompt_tokens, "prompt token")} processed: ${why}`;
}

/** "64 tokens · 12.3 tok/s · first after 0.4 s · prompt of 20 tokens, 12 cached (60 %)" */
function figuresOf({ finish, usage, timings, trace, first, began, truncated }) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const hit = cached ? `, ${count(cached)} cached (${percent(cached / usage.prompt_tokens)})` : "";
  const parts = [
    plural(usage.completion_tokens, "token"),
    ...(timings?.predicted_per_second ? [`${speed(timings.predicted_per_second)} tok/s`] : []),
    `first after ${seconds((first - began) / 1000)}`,
    `prompt of ${plural(usage.prompt_tokens, "token")}${hit}`,
  ];
  if (finish === "length") parts.push("cut by the limit of tokens");
  if (truncated) parts.push(`${plural(truncated, "old message")} left out to fit the context`);
  if (trace && trace.reason !== "complete") parts.push(whyOf(trace));
  return parts.join(" · ");
}

const stuck = new WeakMap(); // a scrolling element -> whether its end was in sight

/** Follows the end of what grows, unless its reader scrolled away. */
function keepAtEnd(node, isForced = false) {
  const pane = node.closest(".answer, #messages") ?? node;
  const isAtEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 60;
  if (stuck.has(pane)) return isForced && stuck.set(pane, true);
  stuck.set(pane, isForced || isAtEnd);
  requestAnimationFrame(() => {
    if (stuck.get(pane)) pane.scrollTop = pane.scrollHeight;
    stuck.delete(pane);
  });
}

// One request that writes: its tokens, its status, its end.

/** Buttons and a status line, and one request at a time. */
class Generator {
  /** name: of the elements' ids; requestNow: path and body of what would be sent now. */
  constructor(name, requestNow) {
    this.send = $(`${name}-send`);
    this.halt = $(`${name}-stop`);
    this.status = $(`${name}-status`);
    this.requestNow = requestNow;
    this.sent = null; // the last request, as it was sent
    this.abort = null;
    this.halt.addEventListener("click", () => this.abort?.abort());
  }

  enable() {
    this.send.disabled = this.abort !== null || document.body.dataset.state !== "ready";
    this.halt.disabled = this.abort === null;
  }

  /**
   * Sends the request; `take` gets each event's choice and its scores.
   * Returns whether anything was answered.
   */
  async run(node, take) {
    const request = this.requestNow();
    this.sent = request;
    this.abort = new AbortController();
    this.enable();
    showCode();
    this.status.classList.remove("failed");
    say(this.status, "sent");
    node.setAttribute("aria-busy", "true");
    const seen = { tokens: 0, began: performance.now(), first: null, finish: null };
    try {
      const options = { body: request.body, signal: this.abort.signal };
      for await (const event of events(await ask(request.path, options))) {
        this.#take(event, seen, take);
        keepAtEnd(node);
      }
      if (seen.finish === null) throw new Lost();
      say(this.status, endOf(seen));
    } catch (error) {
      if (error.name === "AbortError") say(this.status, `stopped after ${plural(seen.tokens, "token")}`);
      else complain(this.status, error);
    } finally {
      this.abort = null;
      node.removeAttribute("aria-busy");
      this.enable();
    }
    return seen.tokens > 0;
  }

  #take(event, seen, take) {
    if (event.error) throw new Refusal(0, event.error);
    if (event.truncated) seen.truncated = event.truncated.messages;
    if (event.usage) seen.usage = event.usage;
    if (event.timings) seen.timings = event.timings;
    if (event.prompt_progress) {
      const { processed, total } = event.prompt_progress;
      return say(this.status, `reading ${count(processed)} of ${plural(total, "token")}`);
    }
    const [choice] = event.choices;
    if (!choice) return;
    const scores = readScores(choice.logprobs);
    seen.first ??= performance.now();
    seen.tokens += scores.length;
    seen.finish ??= choice.finish_reason;
    take(choice, scores);
    const rate = (1000 * (seen.tokens - 1)) / (performance.now() - seen.first);
    const shown = seen.tokens > 1 && Number.isFinite(rate) ? ` · ${speed(rate)} tok/s` : "";
    say(this.status, `writing · ${plural(seen.tokens, "token")}${shown}`);
  }
}

/** "ended by itself · 64 tokens · 12.3 tok/s · first after 0.4 s · read 20 tokens, 12 cached" */
function endOf({ finish, usage, timings, first, began, truncated }) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const reasons = { stop: "ended by itself", length: "ended by the limit" };
  const parts = [
    reasons[finish] ?? `ended: ${finish}`,
    plural(usage.completion_tokens, "token"),
    ...(timings?.predicted_per_second ? [`${speed(timings.predicted_per_second)} tok/s`] : []),
    `first after ${seconds((first - began) / 1000)}`,
    `prompt of ${plural(usage.prompt_tokens, "token")}${cached ? `, ${count(cached)} cached` : ""}`,
  ];
  if (truncated) parts.push(`${plural(truncated, "old message")} left out`);
  return parts.join(" · ");
}

const stuck = new WeakMap(); // a scrolling element -> whether its end was in sight

/** Follows the end of what grows, unless its reader scrolled away. */
function keepAtEnd(node) {
  const pane = node.closest(".answer, #messages") ?? node;
  if (stuck.has(pane)) return;
  stuck.set(pane, pane.scrollHeight - pane.scrollTop - pane.clientHeight < 60);
  requestAnimationFrame(() => {
    if (stuck.get(pane)) pane.scrollTop = pane.scrollHeight;
    stuck.delete(pane);
  });
}

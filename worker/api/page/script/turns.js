// The messages of a conversation as items of a list, with what can be done with each.

const items = new WeakMap(); // message -> its item

/** A message that is written: its text as Markdown or as tokens, its reasoning, its tool calls. */
class Answer {
  constructor(message) {
    this.message = message;
    this.text = el("div", { class: "text prose" });
    this.item = el("li", { class: "assistant" }, el("p", { class: "who" }, message.model || "Model"), this.text);
    items.set(message, this.item);
    this.parts = {}; // name of a part -> what it grows in
  }

  take({ delta }, scores) {
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning) {
      this.message.reasoning = (this.message.reasoning ?? "") + reasoning;
      this.#part("reasoning", scores).add(reasoning, scores);
    }
    if (delta.content || (scores.length > 0 && !reasoning)) {
      this.message.content += delta.content ?? "";
      this.#part("content", scores).add(delta.content ?? "", scores);
    }
    for (const { index, id, function: part } of delta.tool_calls ?? []) {
      this.message.tool_calls ??= [];
      const call = (this.message.tool_calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } });
      call.function.name += part?.name ?? "";
      call.function.arguments += part?.arguments ?? "";
      this.showCalls();
    }
  }

  #part(name, scores) {
    const node = () => (name === "content" ? this.text : this.addReasoning());
    return (this.parts[name] ??= scores.length > 0 ? tokensIn(node(), name) : new Markdown(node()));
  }

  /** The folded element before the answer. */
  addReasoning() {
    const text = el("div", { class: "thought prose" });
    this.text.before(el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), text));
    return text;
  }

  showCalls() {
    this.calls ??= this.item.appendChild(el("div", { class: "calls" }));
    const shown = this.message.tool_calls.map(({ function: { name, arguments: given } }) =>
      el("div", {}, el("p", {}, "Tool call: ", el("b", {}, name)), codeOf(indented(given), "json")),
    );
    this.calls.replaceChildren(...shown);
  }

  /** All that a stored message holds. */
  fill() {
    const { reasoning, content, tool_calls: calls } = this.message;
    if (reasoning) new Markdown(this.addReasoning(), reasoning);
    new Markdown(this.text, content);
    if (calls) this.showCalls();
    return this.item;
  }

  end() {
    for (const part of Object.values(this.parts)) part.render?.();
  }
}

/** JSON to read; what is none stays. */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function tokensIn(node, name) {
  const label = name === "content" ? "Answer" : "Reasoning";
  for (const [key, value] of Object.entries({
    class: `${name === "content" ? "" : "thought "}tokens`,
    tabindex: 0,
    role: "group",
    "aria-label": `${label}. Arrow keys go from token to token.`,
  })) {
    node.setAttribute(key, value);
  }
  return new Tokens(node);
}

/** What a person or a tool said. */
function saidItem(message) {
  const isTool = message.role === "tool";
  const shown = mediaOf(message).map((part) => thumbnail(part, "An image of this message"));
  const text = el("div", { class: "text plain" }, wordsOf(message), ...shown);
  return el("li", { class: isTool ? "tool" : "user" }, el("p", { class: "who" }, isTool ? "Tool result" : "You"), text);
}

function itemOf(message) {
  if (!items.has(message)) {
    items.set(message, message.role === "assistant" ? new Answer(message).fill() : saidItem(message));
  }
  return items.get(message);
}

function showConversation() {
  const branch = branchOf(shown);
  $("messages").replaceChildren(...branch.map(itemOf));
  for (const message of branch) showActions(message);
  showCode();
}

const button = (text, label, action, marks = {}) => {
  const made = el("button", { type: "button", "aria-label": label, ...marks }, text);
  made.addEventListener("click", () => action(made));
  return made;
};
const RESTS = { "data-rests": "" }; // of buttons that work while no answer is written

/** The line under a message: figures, buttons, its other versions. */
function showActions(message) {
  const item = itemOf(message);
  item.querySelector(":scope > .turn")?.remove();
  item.querySelector(":scope > .result")?.remove();
  const isAnswer = message.role === "assistant";
  const parts = isAnswer && message.stats ? [el("p", { class: "stats" }, message.stats)] : [];
  const words = wordsOf(message);
  if (words) parts.push(button("Copy", "Copy message", (made) => copyText(words, made)));
  if (isAnswer) parts.push(button("Regenerate", "Regenerate this answer", () => regenerate(message), RESTS));
  if (message.role === "user") parts.push(button("Edit", "Edit this message", () => edit(message), RESTS));
  const versions = versionsOf(shown, message);
  if (versions.length > 1) parts.push(versionsLine(message, versions));
  if (isAnswer && message.tool_calls && shown.leaf === message.id) item.append(resultForm(message));
  item.append(el("div", { class: "turn" }, ...parts));
  showRest();
}

function versionsLine(message, versions) {
  const at = versions.indexOf(message);
  const go = (step) => {
    const next = versions[at + step];
    showBranch(shown, next);
    showConversation();
    keepShown();
    const found = itemOf(next).querySelectorAll("[data-step]:not(:disabled)");
    ([...found].find((each) => +each.dataset.step === step) ?? found[0])?.focus();
  };
  const arrow = (text, label, step) => {
    const made = button(text, label, () => go(step), { ...RESTS, "data-step": step });
    made.hidden = !versions[at + step];
    return made;
  };
  const place = `${at + 1} of ${versions.length}`;
  return el("span", { class: "versions" }, arrow("‹", "Previous version", -1), place, arrow("›", "Next version", 1));
}

/** Fields for what the tools of an answer gave. */
function resultForm(message) {
  const fields = message.tool_calls.map((call, index) => {
    const id = `result-${message.id}-${index}`;
    const field = el("textarea", { id, rows: 2, spellcheck: "false", required: "" });
    return [call, field, el("label", { for: id }, `Result of ${call.function.name}`)];
  });
  const send = el("button", { type: "submit", ...RESTS }, "Send result");
  const form = el("form", { class: "result" }, ...fields.flatMap(([, field, label]) => [label, field]), send);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const results = fields.map(([call, field]) => ({ role: "tool", tool_call_id: call.id, content: field.value }));
    addAndAnswer(message.id, results);
  });
  return form;
}

/** What waits for the end of an answer. */
function showRest() {
  for (const each of $("messages").querySelectorAll("[data-rests]")) each.disabled = chat.abort !== null;
}

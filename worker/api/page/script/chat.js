// Chat: a conversation, kept in this page only.

let turns = []; // {role, content} as the API takes them

const chat = new Generator("chat", () => {
  const instructions = $("system").value.trim();
  const draft = contentOf($("message").value.trim());
  const messages = [
    ...(instructions ? [{ role: "system", content: instructions }] : []),
    ...turns,
    ...(draft || turns.length > 0 ? [] : [{ role: "user", content: $("message").placeholder }]),
    ...(draft ? [{ role: "user", content: draft }] : []),
  ];
  const fields = { messages, truncation: "auto" };
  return {
    path: "v1/chat/completions",
    body: requestOf(fields, { logprobs: true, top_logprobs: 5 }),
  };
});

/** A new message in the list; returns where its text goes. */
function addMessage(role, name) {
  const text = el("div", { class: role === "user" ? "plain" : "tokens" });
  const item = el("li", { class: role }, el("p", { class: "who" }, name), text);
  $("messages").append(item);
  if (role === "assistant") {
    text.tabIndex = 0;
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "Answer. Arrow keys go from token to token.");
  }
  return text;
}

/** The element for thoughts before an answer: folded, and open at a click. */
function addThought(answer) {
  const text = el("div", { class: "thought tokens", tabindex: 0, role: "group" });
  text.setAttribute("aria-label", "Thoughts. Arrow keys go from token to token.");
  answer.before(el("details", {}, el("summary", {}, "Thoughts"), text));
  return text;
}

$("chat-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (chat.send.disabled) return;
  const shown = pictures;
  const hasBegun = turns.length > 0 || shown.length > 0;
  const said = $("message").value.trim() || (hasBegun ? "" : $("message").placeholder);
  const asked = contentOf(said);
  if (asked === "") return;
  const begun = turns;
  addMessage("user", "You").append(said, ...shown.map((src) => el("img", { src, alt: "A picture" })));
  const answer = addMessage("assistant", model);
  const content = new Tokens(answer);
  let thought = null;
  const running = chat.run(answer, ({ delta }, scores) => {
    const thoughts = delta.reasoning_content ?? delta.reasoning;
    if (thoughts) thought ??= new Tokens(addThought(answer));
    if (thoughts) thought.add(thoughts, scores);
    else content.add(delta.content ?? "", scores);
  });
  $("message").value = "";
  setPictures([]);
  $("message").focus();
  const isAnswered = await running;
  if (turns !== begun) return; // a new chat began meanwhile
  if (isAnswered) {
    turns = [...turns, { role: "user", content: asked }, { role: "assistant", content: content.text }];
  } else {
    $("message").value ||= said;
    if (pictures.length === 0) setPictures(shown);
    for (const item of [...$("messages").children].slice(-2)) item.remove();
  }
  showCode();
});
$("chat-new").addEventListener("click", () => {
  chat.abort?.abort();
  turns = [];
  setPictures([]);
  $("messages").replaceChildren();
  say(chat.status, "");
  showCode();
});
$("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("chat-form").requestSubmit();
});
for (const name of ["message", "system"]) $(name).addEventListener("input", () => showCode());

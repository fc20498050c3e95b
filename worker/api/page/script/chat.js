// Chat: asks, and answers that can be stopped, written again and branched.

let shown = newConversation();

const chat = new Generator("chat", () => {
  const system = $("system").value.trim();
  const branch = branchOf(shown).map(sentOf);
  const draft = contentOf($("message").value.trim(), media);
  const asked = draft || (branch.length > 0 ? "" : $("message").placeholder);
  const messages = [
    ...(system ? [{ role: "system", content: system }] : []),
    ...branch,
    ...(asked ? [{ role: "user", content: asked }] : []),
  ];
  const tools = toolsNow();
  const scores = $("probabilities").checked ? { logprobs: true, top_logprobs: 5 } : {};
  const fields = { messages, truncation: "auto", ...(tools?.length ? { tools } : {}) };
  return { path: "v1/chat/completions", body: requestOf(fields, scores) };
}, true);

/** The tools of the conversation; null: what stands in their field is no JSON. */
function toolsNow() {
  try {
    const tools = JSON.parse($("tools").value.trim() || "[]");
    return Array.isArray(tools) ? tools : [tools];
  } catch {
    return null;
  }
}

/** Adds messages behind a parent and answers them. Without an answer they are taken back. */
async function addAndAnswer(parent, messages) {
  if (!isOpen() || chat.abort) return false;
  if (toolsNow() === null) {
    $("system-part").open = true;
    complain(chat.status, new Error("The tools are not JSON. Correct them in System prompt and tools."));
    return false;
  }
  const conversation = shown;
  const before = conversation.leaf;
  conversation.leaf = parent;
  let last = parent;
  for (const message of messages) last = append(conversation, last, message).id;
  conversation.title ||= wordsOf(branchOf(conversation)[0]).slice(0, 80);
  const message = { role: "assistant", content: "", model };
  const answer = new Answer(message);
  showConversation();
  $("messages").append(answer.item);
  const running = chat.run(answer.item, (choice, scores) => answer.take(choice, scores));
  append(conversation, last, message);
  keep(conversation);
  showRest();
  keepAtEnd(answer.item, true);
  const { isAnswered, stats } = await running;
  answer.end();
  if (isAnswered) {
    message.stats = stats;
  } else {
    for (const each of [message, ...messages]) takeBack(conversation, each, before);
  }
  conversation.changed = Date.now();
  if (shown === conversation) showConversation();
  if (conversations.includes(conversation)) keep(conversation); // else it was deleted meanwhile
  return isAnswered;
}

$("chat-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (chat.send.disabled) return;
  const parts = media;
  const isNew = shown.messages.length === 0 && parts.length === 0;
  const said = $("message").value.trim() || (isNew ? $("message").placeholder : "");
  const content = contentOf(said, parts);
  if (content === "") return;
  $("message").value = "";
  setMedia([]);
  $("message").focus();
  const conversation = shown;
  if ((await addAndAnswer(shown.leaf, [{ role: "user", content }])) || shown !== conversation) return;
  $("message").value ||= said;
  if (media.length === 0) setMedia(parts);
});

async function regenerate(message) {
  $("message").focus();
  await addAndAnswer(message.parent, []);
}

/** Puts a field in the place of a message; sending it begins a branch. */
function edit(message) {
  const item = itemOf(message);
  const text = item.querySelector(".text");
  const field = el("textarea", { rows: 3, "aria-label": "Edit your message", spellcheck: "false" });
  field.value = wordsOf(message);
  const close = () => {
    form.replaceWith(text);
    showActions(message);
    item.querySelector('[aria-label^="Edit"]').focus();
  };
  const send = el("button", { class: "main", type: "submit", "data-rests": "" }, "Send");
  const form = el("form", { class: "edit" }, field, el("div", { class: "actions" }, send, button("Cancel", "Cancel editing", close)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const content = contentOf(field.value.trim(), mediaOf(message));
    if (content === "" || send.disabled) return;
    form.replaceWith(text);
    $("message").focus();
    await addAndAnswer(message.parent, [{ role: "user", content }]);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else sendOnEnter(event, form);
  });
  text.replaceWith(form);
  item.querySelector(".turn").replaceChildren();
  field.focus();
}

function sendOnEnter(event, form) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
}

/** Leaves the conversation that is shown; an answer that is written ends. */
function openConversation(conversation) {
  chat.abort?.abort();
  shown = conversation;
  $("system").value = conversation.system;
  $("tools").value = conversation.tools;
  setMedia([]);
  say(chat.status, "");
  chat.status.classList.remove("failed");
  showConversation();
  showTools();
  keepAtEnd($("messages"), true);
}

function showTools() {
  $("tools").setAttribute("aria-invalid", toolsNow() === null);
  $("tools-error").hidden = toolsNow() !== null;
}

$("chat-new").addEventListener("click", () => {
  openConversation({ ...newConversation(), system: $("system").value, tools: $("tools").value });
  $("message").focus();
});
$("message").addEventListener("keydown", (event) => {
  if (event.key === "Escape") chat.abort?.abort();
  else sendOnEnter(event, $("chat-form"));
});
for (const name of ["message", "system", "tools"]) $(name).addEventListener("input", () => showCode());
for (const name of ["system", "tools"]) {
  $(name).addEventListener("change", () => {
    shown[name] = $(name).value;
    keepShown();
  });
}
$("tools").addEventListener("input", showTools);
$("probabilities").addEventListener("change", () => showCode());

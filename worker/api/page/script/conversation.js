// A conversation: a tree of messages, of which one branch is shown. Plain data, as it is exported.

/** leaf: the id of the last message that is shown. */
const newConversation = () => ({
  id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`,
  changed: Date.now(),
  title: "",
  model: "",
  system: "",
  tools: "",
  leaf: null,
  messages: [], // {id, parent, role, content, ...}
});

/** Shows the branch that ends here; its messages remember what follows them. */
function showLast(conversation, leaf) {
  conversation.leaf = leaf;
  branchOf(conversation).reduce((before, message) => {
    if (before) before.next = message.id;
    return message;
  }, null);
}

/** Adds a message behind `parent` and shows its branch. */
function append(conversation, parent, message) {
  message.id = 1 + Math.max(0, ...conversation.messages.map((each) => each.id));
  message.parent = parent;
  conversation.messages.push(message);
  showLast(conversation, message.id);
  return message;
}

const messageOf = (conversation, id) => conversation.messages.find((each) => each.id === id);

/** The messages of the branch that is shown, the first one first. */
function branchOf(conversation) {
  const found = [];
  let at = messageOf(conversation, conversation.leaf);
  for (; at; at = messageOf(conversation, at.parent)) found.unshift(at);
  return found;
}

/** The message and those that stand in its place on other branches. */
const versionsOf = (conversation, { parent }) =>
  conversation.messages.filter((each) => each.parent === parent);

/** Shows the branch through a message that was shown last. */
function showBranch(conversation, message) {
  let at = message;
  for (let next = at; next; next = messageOf(conversation, at.next)) at = next;
  showLast(conversation, at.id);
}

/** Takes back a message that got no answer, and shows what was shown before. */
function takeBack(conversation, message, leaf) {
  conversation.messages = conversation.messages.filter((each) => each !== message);
  showLast(conversation, leaf);
}

/** A message as the API takes it. */
function sentOf({ role, content, tool_calls, tool_call_id }) {
  return {
    role,
    content,
    ...(tool_calls ? { tool_calls } : {}),
    ...(tool_call_id ? { tool_call_id } : {}),
  };
}

/** The words of a message without its images and audio. */
const wordsOf = ({ content }) =>
  typeof content === "string"
    ? content
    : content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");

const mediaOf = ({ content }) =>
  typeof content === "string" ? [] : content.filter((part) => part.type !== "text");

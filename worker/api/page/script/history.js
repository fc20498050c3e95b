// The conversations of this page, or of this browser if its user allows that.

let conversations = []; // all conversations, the newest first

/** Remembers a conversation; in the browser if that is allowed. */
async function keep(conversation) {
  const before = conversations.filter((each) => each.id !== conversation.id);
  const isEmpty = conversation.messages.length === 0;
  if (isEmpty && before.length === conversations.length) return;
  conversations = isEmpty ? before : [conversation, ...before];
  showHistory();
  if (!store.isAllowed) return;
  await store[isEmpty ? "remove" : "keep"](conversation).catch(complainOfStore);
}

const keepShown = () => keep(shown);

function complainOfStore(error) {
  const isFull = error?.name === "QuotaExceededError";
  const text = isFull
    ? "This browser has no room left for conversations. Export and delete some."
    : "This browser does not let the page store conversations. Export them to keep them.";
  say($("keep-status"), text);
}

function showHistory() {
  const shownItems = conversations.map((conversation) => {
    const title = conversation.title || "Untitled";
    const open = el("button", { type: "button", class: "title" }, title);
    if (conversation === shown) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      openConversation(conversation);
      showHistory();
      $("message").focus();
    });
    const when = el("time", { class: "dim" }, new Date(conversation.changed).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }));
    const drop = button("Delete", `Delete ${title}`, () => remove(conversation));
    return el("li", {}, open, when, drop);
  });
  $("conversations").replaceChildren(...shownItems);
  $("no-conversations").hidden = conversations.length > 0;
  $("export").disabled = conversations.length === 0;
  say($("conversations-count"), conversations.length > 0 ? `${conversations.length}` : "");
}

async function remove(conversation) {
  conversations = conversations.filter((each) => each !== conversation);
  if (conversation === shown) openConversation(newConversation());
  showHistory();
  $("history-part").querySelector("summary").focus();
  if (store.isAllowed) await store.remove(conversation).catch(complainOfStore);
}

$("export").addEventListener("click", () => {
  const text = JSON.stringify({ exported_by: "gguf-worker", conversations: conversations }, null, 2);
  const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href, download: `conversations-${new Date().toISOString().slice(0, 10)}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
});

$("keep").addEventListener("change", async () => {
  const isWanted = $("keep").checked;
  say($("keep-status"), "");
  try {
    await store.allow(isWanted);
    if (isWanted) for (const conversation of conversations) await store.keep(conversation);
    say($("keep-status"), isWanted ? "Conversations stay in this browser." : "The stored conversations are deleted.");
  } catch (error) {
    $("keep").checked = false;
    complainOfStore(error);
  }
});

if (store.isAllowed) {
  $("keep").checked = true;
  store.all().then((found) => {
    const isKnown = new Set(conversations.map((each) => each.id));
    conversations = [...conversations, ...found.filter((each) => !isKnown.has(each.id))];
    showHistory();
  }, complainOfStore);
}
showHistory();

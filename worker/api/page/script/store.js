// Conversations in this browser's own database, if its user allows that. Keys are never stored.

const CONSENT = "gguf-worker: keep conversations";

const store = {
  /** Whether the user allows it. Browsers that block storage throw. */
  get isAllowed() {
    try {
      return localStorage.getItem(CONSENT) === "yes";
    } catch {
      return false;
    }
  },

  /** No longer allowed: all conversations go. */
  async allow(isAllowed) {
    if (isAllowed) return localStorage.setItem(CONSENT, "yes");
    localStorage.removeItem(CONSENT);
    await this.ask("readwrite", (all) => all.clear());
  },

  async all() {
    const found = await this.ask("readonly", (all) => all.getAll());
    return found.sort((one, other) => other.changed - one.changed);
  },

  keep: (conversation) => store.ask("readwrite", (all) => all.put(conversation)),
  remove: ({ id }) => store.ask("readwrite", (all) => all.delete(id)),

  /** The answer of the database to one request; rejects if it is full or blocked. */
  async ask(mode, request) {
    const settled = (asked) =>
      new Promise((done, failed) => {
        asked.onsuccess = () => done(asked.result);
        asked.onerror = () => failed(asked.error);
      });
    const opening = indexedDB.open("gguf-worker", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("conversations", { keyPath: "id" });
    const database = await settled(opening);
    try {
      return await settled(request(database.transaction("conversations", mode).objectStore("conversations")));
    } finally {
      database.close();
    }
  },
};

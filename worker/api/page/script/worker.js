// Requests to the worker. The key lives in this variable only, and goes with the tab.

let key = "";

const PLAIN = {
  queue_full: () => "The worker is out of room: as many requests wait as it takes. Try again in a moment.",
  context_length_exceeded: (said) => `Out of room. ${said}`,
  draining: () => "The worker is shutting down and takes no new requests. Try again when it is back.",
};

/** An answer that is an error, in plain words or the worker's own. */
class Refusal extends Error {
  constructor(status, error) {
    const said = error.message ?? `The worker answered ${status}.`;
    super(PLAIN[error.code]?.(said) ?? said);
    this.status = status;
    this.code = error.code;
  }
}

/** No connection, or one that broke. Browsers have other words for it, each its own. */
class Lost extends Error {
  message = "The worker is gone.";
}

const lose = (error) => {
  throw error instanceof TypeError ? new Lost() : error;
};

/** Where a path of the API is, as seen from this page: behind a proxy too. */
const address = (path) => new URL(path, document.baseURI).href;

/** The answer to GET, or to POST where there is a body. Throws Refusal or Lost. */
async function ask(path, { body, signal } = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(address(path), {
    method: body === undefined ? "GET" : "POST",
    body: body === undefined ? undefined : JSON.stringify(body),
    headers,
    signal,
    cache: "no-store",
    credentials: "omit",
  }).catch(lose);
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  const refusal = new Refusal(response.status, told.error ?? {});
  if (refusal.status === 401) askForKey();
  throw refusal;
}

const read = async (path) => (await ask(path)).json();

/** The events of a stream, parsed; comments and the end mark are left out. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(lose);
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (frame.startsWith("data: {")) yield JSON.parse(frame.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const unlocked = new EventTarget();

/** Asks for the key; `unlocked` gets an event "key" when there is one to try. */
function askForKey() {
  setState("locked", "needs a key");
  say($("key-error"), key ? "That key is wrong." : "");
  if (!$("key-dialog").open) $("key-dialog").showModal();
  $("key").select();
}

$("unlock").addEventListener("click", askForKey);
$("key-form").addEventListener("submit", () => {
  key = $("key").value;
  $("key").value = "";
  unlocked.dispatchEvent(new Event("key"));
});

const NOTICES = {
  draining: "The worker is shutting down. Running answers may still end; new messages are refused.",
  asleep: "The model is asleep to save memory. Your next message wakes it, which takes a moment.",
  gone: "The worker does not answer. The page connects again as soon as it is back.",
};

/** Whether the worker takes requests. */
const isOpen = () => ["ready", "asleep"].includes(document.body.dataset.state);

/** Shows how the worker is: connecting, locked, loading, ready, asleep, draining, gone or failed. */
function setState(name, text) {
  document.body.dataset.state = name;
  say($("state"), text);
  $("unlock").hidden = name !== "locked";
  $("loading").hidden = name !== "loading";
  say($("notice"), NOTICES[name] ?? "");
  $("notice").hidden = !NOTICES[name];
  for (const panel of [write, chat, decide, compare]) panel.enable();
}

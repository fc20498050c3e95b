// What the worker does now: one stream of events, opened again whenever it ends.

const INTERVAL_S = 1;
const SILENCE_MS = 15_000; // the worker is gone, or the way to it
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8_000;

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const next = (target, name) =>
  new Promise((done) => target.addEventListener(name, done, { once: true }));

/** Never ends. A hidden page follows nothing, so that it costs the worker nothing. */
async function follow() {
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    while (document.hidden) await next(document, "visibilitychange");
    try {
      await watch(() => (pause = FIRST_PAUSE_MS));
      if (document.hidden) continue;
      // A worker that drains ends the stream, and answers until it exits.
      if (document.body.dataset.state !== "draining") showGone();
    } catch (error) {
      if (error.status === 401) {
        await next(unlocked, "key");
        continue;
      }
      if (error.status === 503 && error.code === 503) await followLoad().catch(showGone);
      else if (error.code === "draining") setState("draining", "shutting down");
      else if (error instanceof Refusal) setState("failed", error.message);
      else showGone(error);
    }
    await wait(pause * (0.75 + Math.random() / 2));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

function showGone(error) {
  setState("gone", "gone, trying again");
  say($("counts"), "");
  if (error && !(error instanceof Lost)) reportError(error);
}

/** Shows events until the stream ends, says nothing for too long, or nobody looks. */
async function watch(onEvent) {
  const stop = new AbortController();
  const hide = () => document.hidden && stop.abort();
  document.addEventListener("visibilitychange", hide);
  const giveUp = () => stop.abort(new Lost());
  let silence = setTimeout(giveUp, SILENCE_MS);
  try {
    const path = `v1/requests?stream=true&interval=${INTERVAL_S}`;
    const response = await ask(path, { signal: stop.signal });
    let isKnown = false;
    for await (const seen of events(response)) {
      clearTimeout(silence);
      silence = setTimeout(giveUp, SILENCE_MS);
      if (!isKnown && seen.worker.state === "ready") {
        await showModel();
        isKnown = true;
      }
      onEvent();
      showLive(seen);
    }
  } catch (error) {
    if (!document.hidden) throw error;
  } finally {
    clearTimeout(silence);
    document.removeEventListener("visibilitychange", hide);
    stop.abort();
  }
}

async function followLoad() {
  setState("loading", "loading");
  for await (const event of events(await ask("v1/loading/progress"))) {
    if (event.stage === "error") return setState("failed", event.message);
    if (event.stage === "ready") return setState("connecting", "connecting");
    $("load").value = event.progress;
    const layers = event.layers_total
      ? `, ${event.layers_loaded} of ${plural(event.layers_total, "layer")}`
      : "";
    say($("load-text"), `${Math.round(100 * event.progress)} %${layers}`);
  }
}

function showLive(seen) {
  const { worker } = seen;
  const state = worker.state === "ready" && worker.is_sleeping ? "asleep" : worker.state;
  setState(state, { ready: "live", draining: "shutting down" }[state] ?? state);
  say($("name"), worker.model);
  const waiting = worker.waiting ? `, ${count(worker.waiting)} waiting` : "";
  const busy = `${count(worker.running)} of ${plural(worker.slots, "slot")} busy${waiting}`;
  say($("counts"), `${busy} · up ${seconds(worker.uptime_s)}`);
  showRequests(seen.data, seen.recent);
  showCache(worker);
  showMemory(worker);
  showSpeeds(seen.speeds, seen.at);
  showLog(seen.log);
}

// A text of tokens that tell their probability, and what else was likely.

const scoresOf = new WeakMap(); // a token's element -> what was scored for it
const TINTS = [0.05, 0.2, 0.5]; // probabilities below which a token is tinted

/** [text, probability] of a sampled token and its alternatives, from either API's logprobs. */
function readScores(logprobs) {
  if (logprobs?.content) {
    return logprobs.content.map((score) => ({
      token: score.token,
      p: Math.exp(score.logprob),
      top: score.top_logprobs.map((other) => [other.token, Math.exp(other.logprob)]),
    }));
  }
  return (logprobs?.tokens ?? []).map((token, index) => ({
    token,
    p: Math.exp(logprobs.token_logprobs[index]),
    top: Object.entries(logprobs.top_logprobs[index]).map(([text, each]) => [text, Math.exp(each)]),
  }));
}

/** Adds tokens to an element. A token without a text yet tells its scores with the next one. */
class Tokens {
  constructor(node) {
    this.node = node;
    this.waiting = [];
    this.text = "";
  }

  add(text, scores) {
    this.waiting.push(...scores);
    if (!text) return;
    this.text += text;
    const token = el("span", {}, text);
    if (this.waiting.length > 0) {
      scoresOf.set(token, this.waiting);
      const least = Math.min(...this.waiting.map((score) => score.p));
      const tint = TINTS.findIndex((limit) => least < limit);
      if (tint >= 0) token.dataset.p = tint;
      this.waiting = [];
    }
    this.node.append(token);
  }
}

/** Spaces and ends of lines, made visible. */
const visible = (token) => token.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "·");

let inspected = null;

function inspect(token) {
  inspected?.classList.remove("at");
  inspected = token;
  const scores = token && scoresOf.get(token);
  $("inspector").hidden = !scores;
  if (!scores) return say($("inspected"), "");
  token.classList.add("at");
  $("inspector").replaceChildren(...scores.slice(-2).flatMap(panelOf));
  const spoken = scores.map(({ token: text, p, top }) => {
    const others = top.filter(([other]) => other !== text).map(([other, q]) => `${other} ${percent(q)}`);
    return `${text}: ${percent(p)}. Others: ${others.join(", ")}`;
  });
  say($("inspected"), spoken.join(" "));
  place(token.getClientRects()[0] ?? token.getBoundingClientRect());
}

function panelOf({ token, p, top }) {
  const head = el("p", {}, el("code", {}, visible(token)), percent(p));
  const all = top.some(([other]) => other === token) ? [...top] : [...top, [token, p]];
  all.sort((one, other) => other[1] - one[1]);
  const items = all.map(([other, q]) => {
    const bar = el("i");
    bar.style.width = `${100 * Math.min(1, q)}%`;
    const kind = other === token ? { class: "chosen" } : {};
    return el("li", kind, bar, el("code", {}, visible(other)), percent(q));
  });
  return [head, el("ol", {}, ...items)];
}

/** Puts the inspector under the token, or above it where there is no room. */
function place(at) {
  const { offsetWidth: width, offsetHeight: height, style } = $("inspector");
  const below = at.bottom + 8;
  style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
  style.top = `${below + height < innerHeight ? below : Math.max(8, at.top - height - 8)}px`;
}

/** Keeps the inspector at its token as long as that can be seen in what was scrolled. */
function reposition(scrolled) {
  if (!inspected || !scrolled.contains(inspected)) return;
  const at = inspected.getClientRects()[0];
  const { top, bottom } = scrolled.getBoundingClientRect?.() ?? { top: 0, bottom: innerHeight };
  if (at && at.bottom > top && at.top < bottom) place(at);
  else inspect(null);
}

const tokenAt = (event) => (scoresOf.has(event.target) ? event.target : null);
// What the pointer does not leave stays: where the page moves under a pointer that rests, a browser
// tells that as well, and keys may have chosen another token.
document.addEventListener("mouseover", (event) => tokenAt(event) && inspect(tokenAt(event)));
document.addEventListener("mouseout", (event) => event.target === inspected && inspect(null));
document.addEventListener("click", (event) => inspect(tokenAt(event)));
document.addEventListener("scroll", (event) => reposition(event.target), { capture: true, passive: true });
document.addEventListener("focusout", () => inspect(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return inspect(null);
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  const group = event.target;
  if (!group.classList.contains("tokens") || !(event.key in steps)) return;
  event.preventDefault();
  const all = [...group.children];
  const from = all.indexOf(inspected);
  const to = from < 0 ? (steps[event.key] > 0 ? 0 : all.length - 1) : from + steps[event.key];
  const token = all[Math.max(0, Math.min(all.length - 1, to))];
  if (!token) return;
  token.scrollIntoView({ block: "nearest" });
  requestAnimationFrame(() => inspect(token));
});

// Markdown as elements. The lexer is marked's; what it finds becomes text nodes and elements of
// the tags below, so HTML in a text is shown as text and nothing is loaded.

const LINKS = /^(https?|mailto):/i;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const LEAST_PAUSE_MS = 80;

/** A text with the entities that Markdown knows, such as &lt;, as characters. */
function decoded(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,4}));/gi, (whole, decimal, hex, name) => {
    const code = decimal ? +decimal : Number.parseInt(hex, 16);
    if (name) return ENTITIES[name] ?? whole;
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

const partsOf = (tokens = []) => tokens.flatMap(elementOf);

/** The nodes of one of marked's tokens. */
function elementOf(token) {
  const inside = () => (token.tokens ? partsOf(token.tokens) : [decoded(token.text)]);
  switch (token.type) {
    case "space":
    case "def":
      return [];
    case "heading":
      return [el("h3", { "data-depth": token.depth }, ...inside())];
    case "paragraph":
      return [el("p", {}, ...inside())];
    case "text":
      return inside();
    case "escape":
      return [token.text];
    case "strong":
    case "em":
    case "del":
    case "blockquote":
      return [el(token.type, {}, ...inside())];
    case "br":
    case "hr":
      return [el(token.type)];
    case "codespan":
      return [el("code", {}, token.text)];
    case "code":
      return [codeOf(token.text, (token.lang ?? "").split(/\s/)[0])];
    case "list":
      return [listOf(token)];
    case "table":
      return [tableOf(token)];
    case "link":
      return LINKS.test(token.href) ? [linkOf(token.href, ...inside())] : [token.raw];
    case "image":
      return LINKS.test(token.href) ? [linkOf(token.href, token.text || token.href)] : [token.raw];
    default:
      return [token.raw]; // HTML, and what a later version of marked finds
  }
}

const linkOf = (href, ...parts) =>
  el("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...parts);

/** Code with its language and a button that copies it. */
function codeOf(text, language) {
  const copy = el("button", { type: "button", "aria-label": "Copy code" }, "Copy");
  copy.addEventListener("click", () => copyText(text, copy));
  const head = el("div", { class: "copied" }, el("span", { class: "dim" }, language || "code"), copy);
  const label = language ? `Code, ${language}` : "Code";
  const pre = el("pre", { tabindex: 0, role: "group", "aria-label": label }, el("code", {}, text));
  return el("div", { class: "code" }, head, pre);
}

function listOf({ ordered, start, items }) {
  const parts = items.map((item) => {
    const mark = item.task ? [item.checked ? "☑ " : "☐ "] : [];
    return el("li", {}, ...mark, ...partsOf(item.tokens.filter((each) => each.type !== "checkbox")));
  });
  return el(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {}, ...parts);
}

function tableOf({ header, rows, align }) {
  const row = (cells, tag, scope) =>
    cells.map((cell, column) => {
      const side = align[column] ? { "data-align": align[column] } : {};
      return el(tag, { ...scope, ...side }, ...partsOf(cell.tokens));
    });
  const head = el("thead", {}, el("tr", {}, ...row(header, "th", { scope: "col" })));
  const body = el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...row(cells, "td", {}))));
  const options = { class: "table", tabindex: 0, role: "group", "aria-label": "Table" };
  return el("div", options, el("table", {}, head, body));
}

/** Its blocks; one plain text if it nests deeper than the lexer goes. */
function blocksOf(text) {
  try {
    return marked.lexer(text);
  } catch {
    return [{ type: "plain", raw: text }];
  }
}

/** A text that grows. Blocks that stay keep their elements, and so what is selected in them. */
class Markdown {
  constructor(node, text = "") {
    this.node = node;
    this.text = text;
    this.blocks = []; // [source, its nodes]
    this.timer = null;
    if (text) this.render();
  }

  /** Shows it soon; the longer showing takes, the rarer. */
  add(text) {
    this.text += text;
    this.timer ??= setTimeout(() => this.render(), this.pause ?? 0);
  }

  render() {
    clearTimeout(this.timer);
    this.timer = null;
    const began = performance.now();
    const tokens = blocksOf(this.text);
    let same = 0;
    while (same < this.blocks.length && this.blocks[same][0] === tokens[same]?.raw) same += 1;
    for (const [, nodes] of this.blocks.splice(same)) for (const node of nodes) node.remove();
    for (const token of tokens.slice(same)) {
      const nodes = elementOf(token).map((part) => (part.nodeType ? part : document.createTextNode(part)));
      this.blocks.push([token.raw, nodes]);
      this.node.append(...nodes);
    }
    this.pause = Math.max(LEAST_PAUSE_MS, 4 * (performance.now() - began));
    keepAtEnd(this.node);
  }
}

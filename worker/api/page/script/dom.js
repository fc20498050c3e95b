// Elements and numbers. Data becomes text nodes only: what a model or a log says is never HTML.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

/** A new element; `parts` are texts or elements. */
function el(tag, attributes = {}, ...parts) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...parts);
  return node;
}

/** Changes a text only where it differs, so that a selection in it stays. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A failure in the words of whoever told it. */
function complain(node, error) {
  node.classList.toggle("failed", true);
  say(node, error.message);
}

/** Copies a text, also where a page of plain HTTP has no clipboard, and says so in the button. */
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { class: "sr" });
    field.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const before = button.dataset.label ?? button.firstChild.data;
  button.dataset.label = before;
  button.firstChild.data = "Copied";
  setTimeout(() => (button.firstChild.data = before), 1500);
}

const count = (number) => Math.round(number).toLocaleString("en");
const share = (part, whole) => (whole > 0 ? Math.min(1, part / whole) : 0);
const percent = (part) =>
  part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** 12.3, and 1,234 where a tenth says nothing. */
const speed = (number) => (number > 0 && number < 100 ? number.toFixed(1) : count(number));

function bytes(number) {
  const unit = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (number >= 1000 && step < unit.length - 1) [number, step] = [number / 1000, step + 1];
  return `${number < 10 && step > 1 ? number.toFixed(1) : Math.round(number)} ${unit[step]}`;
}

function seconds(number) {
  if (number < 10) return `${number.toFixed(1)} s`;
  if (number < 120) return `${Math.round(number)} s`;
  if (number < 7200) return `${Math.round(number / 60)} min`;
  return number < 172800 ? `${Math.round(number / 3600)} h` : `${Math.round(number / 86400)} days`;
}

/** Sets the widths of a stack's parts, as shares of its whole. */
function fill(stack, ...shares) {
  shares.forEach((part, index) => (stack.children[index].style.width = `${100 * part}%`));
}

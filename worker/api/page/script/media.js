// Images and audio of the next message: chosen, pasted or dropped, if the model takes them.

const SENT_AS_THEY_ARE = ["image/png", "image/jpeg", "image/gif", "image/bmp"];
const AUDIO = { "audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/flac": "flac" };
const LARGE = 4e6; // bytes; larger images are sent as a JPEG of at most so many pixels a side
const SIDE = 2048;
let takes = { vision: false, audio: false };
let media = []; // parts of a message, as the API takes them

/** Shows what the model takes, by `modalities` of /props. */
function offerMedia({ vision, audio }) {
  takes = { vision, audio };
  const kinds = [...(vision ? ["images"] : []), ...(audio ? ["audio"] : [])].join(" or ");
  const types = [...(vision ? ["image/*"] : []), ...(audio ? [...Object.keys(AUDIO), ".wav", ".mp3", ".flac"] : [])];
  $("files").accept = types.join(",");
  $("attach").hidden = $("media-hint").hidden = kinds === "";
  say($("attach"), `Add ${kinds}`);
  say($("media-hint"), `; paste or drop ${kinds}`);
}

async function urlOf(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

/** An image as a data URL that the worker reads. */
async function imageOf(file) {
  if (SENT_AS_THEY_ARE.includes(file.type) && file.size <= LARGE) return urlOf(file);
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = el("canvas", { width: bitmap.width * scale, height: bitmap.height * scale });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

/** A file as a part of a message. */
async function partOf(file) {
  if (file.type.startsWith("image/")) {
    return { type: "image_url", image_url: { url: await imageOf(file) } };
  }
  const format = AUDIO[file.type] ?? file.name.split(".").at(-1).toLowerCase();
  const data = (await urlOf(file)).split(",")[1];
  return { type: "input_audio", input_audio: { data, format } };
}

/** What is shown of an image or a sound. */
function thumbnail(part, alt) {
  if (part.type === "image_url") return el("img", { src: part.image_url.url, alt });
  const { data, format } = part.input_audio;
  return el("span", { class: "sound" }, `♪ ${format.toUpperCase()}, ${bytes(0.75 * data.length)}`);
}

function setMedia(parts) {
  media = parts;
  const items = parts.map((part, index) => {
    const kind = part.type === "image_url" ? "image" : "audio";
    const button = el("button", { type: "button", "aria-label": `Remove ${kind} ${index + 1}` });
    button.append(thumbnail(part, ""), el("span", { "aria-hidden": "true" }, " ✕"));
    button.addEventListener("click", () => {
      setMedia(media.filter((_, place) => place !== index));
      $("message").focus();
    });
    return el("li", {}, button);
  });
  $("media").replaceChildren(...items);
  showCode();
}

/** What was chosen, pasted or dropped; returns whether there was any that the model takes. */
function takeMedia(files) {
  const isTaken = ({ type, name }) =>
    (takes.vision && type.startsWith("image/")) ||
    (takes.audio && (type in AUDIO || /\.(wav|mp3|flac)$/i.test(name)));
  const found = [...files].filter(isTaken);
  if (found.length === 0) return false;
  Promise.all(found.map(partOf)).then(
    (parts) => setMedia([...media, ...parts]),
    () => complain(chat.status, new Error("This file cannot be read. Try a PNG, JPEG, WAV, MP3 or FLAC file.")),
  );
  return true;
}

/** A message with images and audio, as the API takes it. */
const contentOf = (text, parts) =>
  parts.length === 0 ? text : [...parts, ...(text ? [{ type: "text", text }] : [])];

$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  takeMedia($("files").files);
  $("files").value = "";
});
$("chat").addEventListener("paste", (event) => {
  if (takeMedia(event.clipboardData.files)) event.preventDefault();
});
$("chat").addEventListener("dragover", (event) => {
  const isWanted = takes.vision || takes.audio;
  if (isWanted && event.dataTransfer.types.includes("Files")) event.preventDefault();
});
$("chat").addEventListener("drop", (event) => {
  if (takeMedia(event.dataTransfer.files)) event.preventDefault();
});

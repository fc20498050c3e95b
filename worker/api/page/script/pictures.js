// Pictures of the next message: pasted or dropped, where the model sees.

const SENT_AS_THEY_ARE = ["image/png", "image/jpeg", "image/gif", "image/bmp"];
const LARGE = 4e6; // bytes; what is larger is sent as a JPEG of at most so many pixels a side
const SIDE = 2048;
let sees = false;
let pictures = []; // data URLs

/** A file as a data URL that the worker reads. */
async function urlOf(file) {
  if (SENT_AS_THEY_ARE.includes(file.type) && file.size <= LARGE) {
    return new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => failed(reader.error);
      reader.readAsDataURL(file);
    });
  }
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = el("canvas", { width: bitmap.width * scale, height: bitmap.height * scale });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

function setPictures(urls) {
  pictures = urls;
  const parts = urls.map((url, index) => {
    const button = el("button", { type: "button" }, el("img", { src: url, alt: `Remove picture ${index + 1}` }));
    button.addEventListener("click", () => setPictures(pictures.filter((_, place) => place !== index)));
    return el("li", {}, button);
  });
  $("pictures").replaceChildren(...parts);
  showCode();
}

/** What a paste or a drop brought; returns whether there were pictures. */
function takePictures(files) {
  const found = [...files].filter((file) => file.type.startsWith("image/"));
  if (!sees || found.length === 0) return false;
  Promise.all(found.map(urlOf)).then(
    (urls) => setPictures([...pictures, ...urls]),
    () => complain(chat.status, new Error("That picture cannot be read.")),
  );
  return true;
}

/** A message with the pictures, as the API takes it. */
function contentOf(text) {
  if (pictures.length === 0) return text;
  const shown = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return [...shown, ...(text ? [{ type: "text", text }] : [])];
}

$("chat").addEventListener("paste", (event) => {
  if (takePictures(event.clipboardData.files)) event.preventDefault();
});
$("chat").addEventListener("dragover", (event) => {
  if (sees && event.dataTransfer.types.includes("Files")) event.preventDefault();
});
$("chat").addEventListener("drop", (event) => {
  if (takePictures(event.dataTransfer.files)) event.preventDefault();
});

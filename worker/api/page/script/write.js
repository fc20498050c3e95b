// Completions: a text goes on, until the context ends if no limit is set.

const write = new Generator("write", () => ({
  path: "v1/completions",
  body: requestOf({ prompt: $("prompt").value || $("prompt").placeholder, max_tokens: -1 }, { logprobs: 5 }),
}));
let written = new Tokens($("written"));

$("write-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (write.send.disabled) return;
  inspect(null);
  $("written").replaceChildren();
  $("write-more").disabled = true;
  written = new Tokens($("written"));
  await write.run($("written"), (choice, scores) => written.add(choice.text, scores));
  $("write-more").disabled = written.text === "";
});
$("write-more").addEventListener("click", () => {
  $("prompt").value = (write.sent.body.prompt ?? "") + written.text;
  $("written").replaceChildren();
  $("write-more").disabled = true;
  $("prompt").focus();
  showCode();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("write-form").requestSubmit();
});
$("prompt").addEventListener("input", () => showCode());

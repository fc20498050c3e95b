// What runs here, and the fields of sampling with its defaults.

const SAMPLING = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty"];
let model = "";

/** Asks for what does not change while a worker lives, and shows it. */
async function showModel() {
  const [props, models, info] = await Promise.all(["props", "v1/models", "info"].map(read));
  const [entry] = models.data;
  model = entry.id;
  document.title = `${model} – gguf-worker`;
  for (const name of SAMPLING) {
    const field = $(name);
    const value = +props.default_generation_settings.params[name].toPrecision(6);
    const isTouched = field.value !== field.defaultValue;
    field.defaultValue = value;
    if (!isTouched) field.value = value;
  }
  offer(info.capabilities, Boolean(props.chat_template));
  offerMedia(props.modalities);
  $("no-template").hidden = Boolean(props.chat_template);
  const kept = info.draft === "none" ? {} : { "Speculative decoding": info.draft_model ?? info.draft };
  const card = {
    Name: model,
    Architecture: entry.meta.architecture,
    Parameters: count(entry.meta.n_params),
    Quant: `${entry.meta.quant}, ${bytes(entry.meta.size)}`,
    Context: `${count(entry.max_model_len)} of ${plural(entry.meta.n_ctx_train, "token")}`,
    Vocabulary: plural(entry.meta.n_vocab, "token"),
    Runs: `${info.device}, ${plural(info.slots, "slot")}`,
    ...kept,
    Version: `${info.implementation} ${info.version}`,
  };
  const parts = Object.entries(card).flatMap(([name, value]) => [
    el("dt", {}, name),
    el("dd", {}, value),
  ]);
  $("card").replaceChildren(...parts);
  describe();
}

/** What the fields ask for beyond the defaults, as fields of a request. */
function sampling() {
  const asked = $("max_tokens").value === "" ? {} : { max_tokens: +$("max_tokens").value };
  for (const name of SAMPLING) {
    const { value, defaultValue } = $(name);
    if (value !== "" && value !== defaultValue) asked[name] = +value;
  }
  if ($("seed").value !== "") asked.seed = +$("seed").value;
  const stops = $("stop").value.split("\n").filter(Boolean);
  if (stops.length > 0) asked.stop = stops.map((stop) => stop.replaceAll("\\n", "\n"));
  return asked;
}

/** A request that streams with the likeliest alternatives of each token. */
function requestOf(fields, logprobs) {
  return {
    model,
    ...fields,
    ...sampling(),
    ...logprobs,
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    timings_per_token: true,
    return_cache_trace: true,
  };
}

function describe() {
  const shown = Object.entries(sampling()).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  say($("sampling-text"), shown.join(", "));
  showCode();
}

$("fields").addEventListener("input", describe);
$("fields").addEventListener("submit", (event) => event.preventDefault());
$("fields").addEventListener("reset", () => setTimeout(() => ($("tint").onchange(), describe())));
$("tint").onchange = () => document.body.classList.toggle("tinted", $("tint").checked);
$("tint").onchange();

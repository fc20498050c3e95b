// The request as a program.

const KNOWN = new Set([
  ...["model", "input", "prompt", "messages", "max_tokens", "temperature", "top_p", "seed", "stop"],
  ...["stream", "stream_options", "logprobs", "top_logprobs", "tools", "questions"],
]); // what the official client takes by name

/** A text as a word of the shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlOf({ path, body }) {
  const lines = [`curl -N ${quoted(address(path))}`];
  if (key) lines.push('  -H "Authorization: Bearer $API_KEY"');
  lines.push("  -H 'Content-Type: application/json'", `  -d ${quoted(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n");
}

/** A value of JSON as Python writes it. */
function literal(value, indent = "    ") {
  const deeper = `${indent}    `;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((each) => literal(each, deeper))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, deeper)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = open + parts.join(", ") + close;
  if (line.length < 80) return line;
  return `${open}\n${deeper}${parts.join(`,\n${deeper}`)},\n${indent}${close}`;
}

function pythonOf({ path, body }) {
  const isChat = path.includes("chat");
  const fields = Object.entries(body);
  const known = fields.filter(([name]) => KNOWN.has(name));
  const more = Object.fromEntries(fields.filter(([name]) => !KNOWN.has(name)));
  const lines = known.map(([name, value]) => `    ${name}=${literal(value)},`);
  if (Object.keys(more).length > 0) lines.push(`    extra_body=${literal(more)},`);
  const client = `${key ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(address("v1"))},
    api_key=${key ? 'os.environ["API_KEY"]' : '"unused"'},
)
`;
  if (path.includes("embeddings")) {
    return `${client}answer = client.embeddings.create(
${lines.join("\n")}
)
for each in answer.data:
    print(each.index, each.embedding[:3])
`;
  }
  if (path.includes("decisions")) {
    return `${client}answer = client.decisions.create(
${lines.join("\n")}
)
for each in answer.answers:
    print(each)
`;
  }
  return `${client}for event in client.${isChat ? "chat.completions" : "completions"}.create(
${lines.join("\n")}
):
    for choice in event.choices:
        print(choice.${isChat ? 'delta.content or ""' : "text"}, end="", flush=True)
`;
}

function showCode() {
  if (!$("code").open) return;
  const panel = [chat, write, decide, compare].find((each) => !each.send.closest("section").hidden);
  const { path, body } = panel.abort ? panel.sent : panel.requestNow();
  // The bytes of images and audio say nothing to a reader.
  const cut = (name, value) => {
    if (name === "data" && typeof value === "string") return "...";
    return /^data:image\//.test(value) ? `${value.split(",")[0]},...` : value;
  };
  const request = { path, body: JSON.parse(JSON.stringify(body, cut)) };
  say($("curl"), curlOf(request));
  say($("python"), pythonOf(request));
}

$("code").addEventListener("toggle", showCode);
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copyText($(button.dataset.copy).textContent, button));
}

// Decide: typed questions about a text, and the probability of each answer.

/** A line as a question: "Who repairs it? lifts | plumbing" is a choice, "How urgent? low < high" a
 *  scale, anything else a statement. */
function questionOf(line) {
  const mark = ["|", "<"].find((each) => line.includes(` ${each} `));
  if (!mark) return { type: "predicate", instructions: line };
  const [first, ...others] = line.split(` ${mark} `);
  const end = Math.max(first.lastIndexOf("?"), first.lastIndexOf(":")) + 1;
  const instructions = first.slice(0, end).replace(/:$/, "").trim() || "What fits best?";
  const names = [first.slice(end), ...others].map((each) => each.trim()).filter(Boolean);
  return mark === "|"
    ? { type: "choice", instructions, choices: names.map((value) => ({ value })) }
    : { type: "score", instructions, levels: names.map((label) => ({ label })) };
}

/** The options of an answer with their probabilities. */
function optionsOf(answer) {
  if (answer.type === "predicate") {
    return [["true", answer.probability], ["false", 1 - answer.probability]];
  }
  return (answer.probabilities ?? []).map((each) => [`${each.label ?? each.value}`, each.probability]);
}

/** A question with a bar for each option. */
function answerOf(question, answer) {
  const options = optionsOf(answer);
  const best = Math.max(...options.map(([, part]) => part));
  const rows = options.map(([name, part]) => {
    const bar = el("i", { "data-part": part === best ? "live" : "cached" });
    const stack = el("div", { class: "stack", "aria-hidden": "true" }, bar);
    fill(stack, part);
    const label = el("th", { scope: "row" }, name);
    return el("tr", {}, label, el("td", {}, percent(part)), el("td", { class: "bar" }, stack));
  });
  const notes = [];
  if (answer.type === "score") notes.push(`score ${answer.score.toFixed(2)}`);
  if (answer.confidence !== undefined) notes.push(`confidence ${answer.confidence.toFixed(2)}`);
  const told = answer.diagnostics;
  if (told) {
    const known = told.calibration;
    notes.push(`probability of any of these: ${percent(told.label_mass)}`);
    notes.push(known ? `temperature ${known.temperature.toFixed(2)}` : "not calibrated");
  }
  return el(
    "table", { class: "decided" },
    el("caption", {}, question.instructions),
    el("tbody", {}, ...rows),
    el("tfoot", {}, el("tr", {}, el("td", { colspan: "3", class: "dim" }, notes.join(" · ")))),
  );
}

const decide = new Single(
  "decide",
  () => {
    const lines = ($("asked").value || $("asked").placeholder).split("\n");
    const questions = lines.map((line) => line.trim()).filter(Boolean).map(questionOf);
    const input = $("judged").value || $("judged").placeholder;
    return { path: "v1/decisions", body: { model, input, questions } };
  },
  (answer, request) => {
    const { questions } = request.body;
    $("decided").replaceChildren(...answer.answers.map((each, at) => answerOf(questions[at], each)));
    return `${plural(answer.answers.length, "answer")} · ${plural(answer.usage.input_tokens, "token")}`;
  },
);

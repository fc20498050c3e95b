// openai for Node: a chat, a stream, a tool loop, a structured answer, responses.
import OpenAI from "openai";
import { result, scene, tell, url } from "./scene.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const format = { name: "pet", schema: scene.schema, strict: true };

await tell({
  async chat() {
    const reply = await client.chat.completions.create({ model: "m", messages: [user(scene.hello)] });
    return reply.choices[0].message.content;
  },
  async stream() {
    const chunks = await client.chat.completions.create({
      model: "m",
      messages: [user(scene.hello)],
      stream: true,
    });
    let text = "";
    for await (const chunk of chunks) text += chunk.choices[0]?.delta?.content ?? "";
    return text;
  },
  async loop() {
    const tools = scene.tools.map(({ function: declared }) => ({
      type: "function",
      function: {
        ...declared,
        parse: JSON.parse,
        function: (args) => result(declared.name, args),
      },
    }));
    const runner = client.chat.completions.runTools({
      model: "m",
      messages: [user(scene.tour)],
      tools,
      stream: true,
    });
    const text = await runner.finalContent();
    return [runner.messages.length, text];
  },
  async parse() {
    const reply = await client.chat.completions.parse({
      model: "m",
      messages: [user(scene.pet)],
      response_format: { type: "json_schema", json_schema: format },
    });
    return JSON.parse(reply.choices[0].message.content);
  },
  async response() {
    return (await client.responses.create({ model: "m", input: scene.hello })).output_text;
  },
  async response_stream() {
    const events = client.responses.stream({ model: "m", input: scene.hello });
    return (await events.finalResponse()).output_text;
  },
  async response_resume() {
    const asked = { model: "m", input: scene.hello, background: true, stream: true };
    let [text, seen] = ["", []];
    const take = (event) => {
      seen.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
    };
    let name;
    for await (const event of await client.responses.create(asked)) {
      name ??= event.response.id;
      take(event);
      if (seen.length === 6) break;
    }
    const query = { stream: true, starting_after: seen.at(-1) };
    for await (const event of await client.responses.retrieve(name, query)) take(event);
    return seen.every((number, place) => number === place) ? text : `numbers ${seen}`;
  },
});

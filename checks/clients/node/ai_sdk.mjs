// The AI SDK: text, a stream, a tool loop by itself, also as it is by default, an object; and a
// chat whose page was left amid its answer, and comes back (`useChat({ resume: true })`).
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenAI } from "@ai-sdk/openai";
import {
  DefaultChatTransport,
  convertToModelMessages,
  generateObject,
  generateText,
  jsonSchema,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import { result, scene, tell, url } from "./scene.mjs";

const provider = createOpenAICompatible({
  name: "worker",
  baseURL: `${url}/v1`,
  supportsStructuredOutputs: true,
});
const model = provider.chatModel("m");
const tools = Object.fromEntries(
  scene.tools.map(({ function: { name, description, parameters } }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(parameters),
      execute: async (args) => result(name, args),
    }),
  ]),
);
const tour = { model, maxRetries: 0, prompt: scene.tour, tools, stopWhen: stepCountIs(9) };

// An application of a POST that asks the worker, and a GET that picks its stream up.
const streams = new Map();
const ask = async (prompt, fetch) => {
  const { chatModel } = createOpenAICompatible({ name: "worker", baseURL: `${url}/v1`, fetch });
  const answer = streamText({ model: chatModel("m"), maxRetries: 0, prompt });
  return answer.toUIMessageStreamResponse();
};
const application = async (target, { method, body }) => {
  const id = target.split("/")[2];
  if (method === "POST") {
    const { id, messages } = JSON.parse(body);
    return await ask(await convertToModelMessages(messages), async (at, init) => {
      const headers = { ...init.headers, "x-resume": "on" };
      const answer = await fetch(at, { ...init, headers });
      streams.set(id, answer.headers.get("x-stream-id"));
      return answer;
    });
  }
  if (!streams.has(id)) return new Response(null, { status: 204 });
  return await ask("any", () => fetch(`${url}/v1/streams/${streams.get(id)}`));
};

await tell({
  async chat() {
    return (await generateText({ model, maxRetries: 0, prompt: scene.hello })).text;
  },
  async thought() {
    return (await generateText({ model, maxRetries: 0, prompt: scene.hello })).reasoningText;
  },
  async stream() {
    return await streamText({ model, maxRetries: 0, prompt: scene.hello }).text;
  },
  async loop() {
    const found = await generateText(tour);
    return [found.steps.length, found.text];
  },
  async loop_streamed() {
    const found = streamText(tour);
    await found.consumeStream();
    return [(await found.steps).length, await found.text];
  },
  async loop_responses() {
    // It refers to items of answers before.
    const found = await generateText({
      ...tour,
      model: createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" })("m"),
    });
    return [found.steps.length, found.text];
  },
  async resume() {
    const transport = new DefaultChatTransport({ api: "/chat", fetch: application });
    if ((await transport.reconnectToStream({ chatId: "none" })) !== null) return "no 204";
    const parts = [{ type: "text", text: scene.hello }];
    const left = await transport.sendMessages({
      chatId: "c",
      trigger: "submit-message",
      messages: [{ id: "1", role: "user", parts }],
    });
    for await (const part of left) if (part.type.endsWith("-delta")) break;
    let text = "";
    for await (const part of await transport.reconnectToStream({ chatId: "c" }))
      if (part.type === "text-delta") text += part.delta;
    return text;
  },
  async object() {
    const schema = jsonSchema(scene.schema);
    return (await generateObject({ model, maxRetries: 0, prompt: scene.pet, schema })).object;
  },
});

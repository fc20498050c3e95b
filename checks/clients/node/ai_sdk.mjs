// The AI SDK: text, a stream, a tool loop by itself, also as it is by default, an object.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
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
  async object() {
    const schema = jsonSchema(scene.schema);
    return (await generateObject({ model, maxRetries: 0, prompt: scene.pet, schema })).object;
  },
});

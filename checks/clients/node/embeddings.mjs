// openai for Node: vectors, as base64 unless it is told otherwise.
import OpenAI from "openai";
import { tell, url } from "./scene.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const input = ["the rain in spain", "stays in the plain"];
const vectors = async (fields) => {
  const answer = await client.embeddings.create({ model: "m", input, ...fields });
  return answer.data.map((each) => [...each.embedding]);
};

await tell({
  base64: () => vectors({}),
  floats: () => vectors({ encoding_format: "float" }),
});

// The scene of ../programs/scene.py, which passes it as JSON, and what the checks found of it.
export const [url, scene] = [process.argv[2], JSON.parse(process.argv[3])];

export function result(name, args) {
  const step = scene.steps.find(
    ([known, wanted]) => known === name && JSON.stringify(wanted) === JSON.stringify(args),
  );
  if (!step) throw new Error(`no such call: ${name} ${JSON.stringify(args)}`);
  return step[2];
}

export async function tell(checks) {
  const found = {};
  for (const [name, check] of Object.entries(checks)) {
    try {
      found[name] = await check();
    } catch (error) {
      found[name] = `${error.name}: ${error.message}`;
    }
  }
  console.log(JSON.stringify(found));
}

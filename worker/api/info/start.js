"use strict";
// Swagger UI reads all schemas before it shows a line, which would take most of its time. It gets one
// API at a time, with bodies and answers of opened operations only.

function partOf(description, tag, opened) {
  const paths = {};
  for (const [path, item] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      if (operation.tags?.[0] !== tag.name) continue;
      const { requestBody, responses, ...head } = operation;
      paths[path] ??= {};
      paths[path][method] = opened.has(operation.operationId) ? operation : head;
    }
  }
  const { securitySchemes } = description.components;
  const part = { ...description, tags: [tag], paths, components: { securitySchemes } };
  const take = (value) => {
    if (typeof value !== "object" || value === null) return;
    const [, kind, name] = value.$ref?.match?.(/^#\/components\/(\w+)\/(.+)$/) ?? [];
    if (name && !part.components[kind]?.[name]) {
      part.components[kind] = { ...part.components[kind], [name]: description.components[kind][name] };
      take(description.components[kind][name]);
    }
    Object.values(value).forEach(take);
  };
  take(paths);
  return part;
}

function show(description) {
  // As Swagger UI writes it: #/TAG or #/TAG/OPERATION.
  const [named, first] = location.hash.split("/").slice(1).map(decodeURIComponent);
  const tag = description.tags.find(({ name }) => name === named) ?? description.tags[0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.textContent === tag.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.title.startsWith(tag.name)) return;
  document.title = `${tag.name} - API reference`;
  const place = document.createElement("div");
  document.getElementById("reference").replaceChildren(place);
  const opened = new Set([first]);
  const open = (next, system) => (thing, isShown) => {
    const [kind, , operation] = thing;
    if (kind === "operations" && operation && isShown && !opened.has(operation)) {
      opened.add(operation);
      system.specActions.updateSpec(JSON.stringify(partOf(description, tag, opened)));
    }
    return next(thing, isShown);
  };
  SwaggerUIBundle({
    spec: partOf(description, tag, opened), domNode: place, docExpansion: "list", deepLinking: true,
    defaultModelsExpandDepth: -1, validatorUrl: null, persistAuthorization: false,
    plugins: [() => ({ statePlugins: { layout: { wrapActions: { show: open } } } })],
  });
}

async function start() {
  if (matchMedia("(prefers-color-scheme: dark)").matches) {
    document.documentElement.classList.add("dark-mode");
  }
  const description = await (await fetch("/openapi.json")).json();
  document.querySelector("nav").append(...description.tags.map(({ name }) => {
    const link = document.createElement("a");
    link.href = `#/${encodeURIComponent(name)}`;
    link.textContent = name;
    return link;
  }));
  addEventListener("hashchange", () => show(description));
  show(description);
}

start();

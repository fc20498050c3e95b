"use strict";
// Swagger UI reads a description whole before it shows a line of it, which takes seconds for all
// APIs together: it gets one at a time, with what that one refers to.

function partOf(description, tag) {
  const paths = {};
  for (const [path, item] of Object.entries(description.paths)) {
    const own = Object.entries(item).filter(([, operation]) => operation.tags?.[0] === tag.name);
    if (own.length) paths[path] = Object.fromEntries(own);
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
  const named = decodeURIComponent(location.hash.split("/")[1] ?? "");
  const tag = description.tags.find(({ name }) => name === named) ?? description.tags[0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.textContent === tag.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.title.startsWith(tag.name)) return;
  document.title = `${tag.name} - API reference`;
  const place = document.createElement("div");
  document.getElementById("reference").replaceChildren(place);
  SwaggerUIBundle({
    spec: partOf(description, tag), domNode: place, docExpansion: "list", deepLinking: true,
    defaultModelsExpandDepth: -1, validatorUrl: null, persistAuthorization: false,
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

// The API from its own description: each address with its fields, to be tried.

import { byId, el, replace } from "./dom.js";

const KEY = "contextpool-token";
let schemas = {};

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema) ?? {};
const headers = (more = {}) => ({ ...more, ...(sessionStorage.getItem(KEY) ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {}) });

// What a value may be, in words.
function told(schema) {
  const found = resolved(schema);
  if (found.anyOf) return found.anyOf.map(told).filter((one) => one !== "null").join(" or ");
  const kind = found.enum ? found.enum.join(" or ") : found.type === "array" ? `list of ${told(found.items)}` : found.type ?? "";
  const range = [found.minimum !== undefined && `at least ${found.minimum}`, found.maximum !== undefined && `at most ${found.maximum}`].filter(Boolean);
  return [kind, ...range].join(", ");
}

// A body to begin with: what is required, by its example.
function sample(schema) {
  const found = resolved(schema);
  if (found.examples) return found.examples[0];
  if (found.anyOf) return sample(found.anyOf[0]);
  if (found.type === "array") return [sample(found.items)];
  if (found.type !== "object") return found.type === "string" ? "" : null;
  const wanted = found.required ?? found.oneOf?.[0].required ?? [];
  const given = Object.entries(found.properties ?? {}).filter(([name, one]) => wanted.includes(name) && (!found.oneOf || one.examples));
  return Object.fromEntries(given.map(([name, one]) => [name, sample(one)]));
}

function operation(path, method, described) {
  const inputs = new Map();
  const rows = (described.parameters ?? []).filter((one) => one.in === "query").map((one) => {
    const example = resolved(one.schema).examples?.[0] ?? one.schema.examples?.[0];
    const input = el("input", { type: "text", id: `${method}${path}-${one.name}`, value: one.required ? example ?? "" : null, placeholder: one.schema.default ?? "" });
    inputs.set(one.name, input);
    return el("tr", {}, el("th", { scope: "row" }, el("label", { for: input.id }, one.name, one.required ? " *" : "")),
      el("td", {}, input), el("td", { class: "muted small" }, [told(one.schema), one.description].filter(Boolean).join("; ")));
  });
  const [type, content] = Object.entries(described.requestBody?.content ?? {})[0] ?? [null, null];
  const body = type === null ? null : el("textarea", { rows: 6, "aria-label": "Body", spellcheck: "false" });
  if (body) body.value = type === "application/json" ? JSON.stringify(sample(content.schema), null, 2) : "a\tr\tb\n";
  const fields = content === null ? [] : Object.entries(resolved(content.schema).properties ?? {});
  const output = el("pre", { hidden: true, tabindex: 0, "aria-label": "What came back" });
  const send = el("button", { type: "button", class: "primary", onclick: () => attempt(path, method, inputs, type, body, output) }, "Send");
  return el("details", { class: "card" },
    el("summary", {}, el("strong", {}, `${method.toUpperCase()} ${path}`), ` ${described.summary ?? ""}`),
    el("p", {}, described.description ?? ""),
    rows.length ? el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, ...rows))) : null,
    body, fields.length ? el("p", { class: "muted small" }, fields.map(([name, one]) => `${name} (${told(one)})${one.description ? `: ${one.description}` : ""}`).join("  ·  ")) : null,
    el("p", {}, send), output);
}

async function attempt(path, method, inputs, type, body, output) {
  const query = new URLSearchParams([...inputs].filter(([, input]) => input.value).map(([name, input]) => [name, input.value])).toString();
  const address = query ? `${path}?${query}` : path;
  output.hidden = false;
  output.textContent = "…";
  try {
    const answer = await fetch(address, { method: method.toUpperCase(), headers: headers(type ? { "Content-Type": type } : {}), ...(body ? { body: body.value } : {}) });
    const text = await answer.text();
    let shown = text;
    try {
      shown = JSON.stringify(JSON.parse(text), null, 2);
    } catch {} // the metrics are plain text
    output.textContent = `${method.toUpperCase()} ${address}\n${answer.status} ${answer.statusText}\n\n${shown}`;
  } catch {
    output.textContent = "The server cannot be reached.";
  }
}

async function start() {
  const answer = await fetch("/openapi.json", { headers: headers() });
  byId("token-choice").hidden = answer.status !== 401;
  if (!answer.ok) return;
  const described = await answer.json();
  schemas = described.components?.schemas ?? {};
  byId("about").textContent = described.info.description;
  const all = Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => operation(path, method, one)));
  replace(byId("operations"), ...all);
}

byId("token-choice").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("token").value);
  start();
});
start();

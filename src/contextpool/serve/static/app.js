// The page: a question, its answers, the evidence for one of them. The address holds all of it, so it can be shared.

import { get, newest, onTokenNeeded, wasAborted } from "./api.js";
import { Combobox } from "./combobox.js";
import { bare, byId, count, el, inverseOf, isInverse, percent, replace } from "./dom.js";
import { Evidence } from "./evidence.js";

const FEW = 10, MANY = 50;
const predictNewest = newest();
const completeNewest = newest();
const state = { models: [], graphs: [], relations: [], k: FEW, asked: null };

const evidence = new Evidence(tellProblem);
const head = new Combobox(byId("head"), byId("head-list"), completeEntity, () => byId("relation").focus());
const relation = new Combobox(byId("relation"), byId("relation-list"), completeRelation, () => head.value && ask());

onTokenNeeded((wasWrong) => new Promise((resolve) => {
  const dialog = byId("token-dialog");
  dialog.querySelector("p").textContent = wasWrong ? "That token is not the right one." : "This server wants a token. It is kept in this tab only.";
  dialog.addEventListener("close", () => resolve(byId("token").value || null), { once: true });
  dialog.showModal();
}));

const where = () => ({ model: byId("model").value || null, graph: byId("graph").value || null });

// completion

async function completeEntity(text) {
  try {
    const found = await completeNewest("/entities", { prefix: text, limit: 12, graph: where().graph });
    return found.entities.map((one) => ({ value: one.entity, label: one.name ?? one.entity,
      hint: `${one.name ? `${one.entity} · ` : ""}${count(one.facts)} facts` }));
  } catch (error) {
    if (!wasAborted(error)) tellProblem(error);
    return null;
  }
}

const relationLabel = (label) => {
  const row = state.relations.find((one) => one.relation === bare(label));
  const name = row?.name ?? bare(label);
  return isInverse(label) ? `← ${name}` : name;
};

function completeRelation(text) {
  const wanted = text.replace("←", "").trim().toLowerCase();
  const onwards = state.relations.map(({ relation, facts }) => ({ value: relation, label: relationLabel(relation), hint: `${count(facts)} facts` }));
  const back = state.relations.map(({ relation }) => ({ value: inverseOf(relation), label: relationLabel(inverseOf(relation)), hint: "asks for heads" }));
  return [...onwards, ...back].filter(({ label }) => label.toLowerCase().includes(wanted))
    .sort((one, other) => Number(other.label.toLowerCase().startsWith(wanted)) - Number(one.label.toLowerCase().startsWith(wanted)));
}

// A typed relation by its label or as shown here.
function typedRelation() {
  const text = relation.value;
  if (text === null || relation.chosen !== null) return text;
  const all = state.relations.flatMap((row) => [row.relation, inverseOf(row.relation)]);
  return all.find((label) => label === text || relationLabel(label) === text) ?? text;
}

// asking

async function ask(answer = null) {
  const asked = { head: head.value, relation: typedRelation(), ...where() };
  if (!asked.head || !asked.relation) {
    tellProblem(new Error(asked.head ? "Choose a relation." : "Name an entity to ask about."));
    byId(asked.head ? "relation" : "head").focus();
    return;
  }
  state.asked = asked;
  clearProblem();
  byId("status").textContent = "Asking…";
  try {
    const found = await predictNewest("/predict", { ...asked, k: state.k, known: byId("known").checked });
    tellAnswers(found);
    byId("status").textContent = `${found.answers.length} answers`;
    remember(answer);
    if (answer !== null) await choose(answer);
  } catch (error) {
    if (!wasAborted(error)) tellProblem(error);
  }
}

function tellAnswers(found) {
  const { question, answers } = found;
  evidence.hide();
  byId("welcome").hidden = true;
  byId("result").hidden = false;
  byId("answers-title").textContent = `(${head.input.value}, ${relationLabel(question.relation)}, ?)`;
  byId("answers-told").textContent = told(found);
  byId("answers-told").hidden = !told(found);
  replace(byId("answers"), ...answers.map((one, place) => answerItem(one, place + 1)));
  if (!answers.length) replace(byId("answers"), el("li", { class: "muted" }, "The graph already holds every answer."));
  byId("more").hidden = answers.length < state.k || state.k >= MANY;
}

function answerItem(answer, rank) {
  const bar = el("span", { class: "bar" }, el("span", { class: "fill" }));
  bar.firstChild.style.width = `${100 * (answer.probability ?? 0)}%`;
  return el("li", {}, el("button", { type: "button", "data-entity": answer.entity, onclick: () => choose(answer.entity) },
    el("span", { class: "rank" }, rank), el("span", { class: "name" }, answer.name ?? answer.entity,
      answer.known ? el("span", { class: "tag" }, "known") : null),
    el("span", { class: "chance" }, answer.probability === null ? answer.score.toFixed(2) : percent(answer.probability)), bar));
}

// What there is to say above the answers: what the graph holds already, and that none of them is likely.
function told({ known, num_known, bet }) {
  const more = num_known > known.length ? ` and ${num_known - known.length} more` : "";
  const held = num_known ? `Already in the graph: ${known.join(", ")}${more}. ` : "";
  return held + (bet === false ? "None that I would bet on." : "");
}

const answerButtons = () => [...byId("answers").querySelectorAll("button")];

async function choose(entity) {
  for (const button of answerButtons()) {
    if (button.dataset.entity === entity) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  const model = state.models.find((one) => one.name === (state.asked.model ?? state.models[0].name));
  byId("status").textContent = "Looking for the evidence…";
  clearProblem();
  try {
    await evidence.show(state.asked, entity, model);
    byId("status").textContent = `Evidence for ${entity}`;
    remember(entity);
    if (matchMedia("(max-width: 900px)").matches) byId("evidence").scrollIntoView({ block: "start" });
  } catch (error) {
    if (!wasAborted(error)) tellProblem(error);
  }
}

// problems

function clearProblem() {
  byId("problem").hidden = true;
}

function tellProblem(error) {
  const box = byId("problem");
  const suggestions = (error.items ?? []).flatMap((item) => item.closest.map((text) =>
    el("button", { type: "button", class: "quiet", onclick: () => useInstead(item.kind, text) }, text)));
  replace(box, el("p", {}, error.message), ...(suggestions.length ? [el("p", {}, "Did you mean ", ...suggestions)] : []));
  box.hidden = false;
  byId("status").textContent = "";
}

function useInstead(kind, text) {
  if (kind === "relation") relation.set(text, relationLabel(text));
  else head.set(text);
  ask();
}

// the address

function remember(answer) {
  const { asked } = state;
  const parts = new URLSearchParams({ head: asked.head, relation: asked.relation });
  for (const key of ["model", "graph"]) if (asked[key]) parts.set(key, asked[key]);
  if (answer) parts.set("answer", answer);
  if (`#${parts}` !== location.hash) history.pushState(null, "", `#${parts}`);
}

async function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.get("head") || !parts.get("relation")) return;
  for (const key of ["model", "graph"]) if (parts.get(key)) byId(key).value = parts.get(key);
  head.set(parts.get("head"));
  relation.set(parts.get("relation"), relationLabel(parts.get("relation")));
  await ask(parts.get("answer"));
}

// the start

function fillChoice(id, rows) {
  replace(byId(id), ...rows.map((row) => el("option", { value: row.name }, row.name)));
  byId(`${id}-choice`).hidden = rows.length < 2;
}

async function loadRelations() {
  state.relations = (await get("/relations", where())).relations;
  const graph = state.graphs.find((one) => one.name === byId("graph").value);
  byId("size").textContent = `${graph.name}: ${count(graph.entities)} entities, ${count(graph.relations)} relations, ${count(graph.facts)} facts.`;
}

async function changed() {
  clearProblem();
  try {
    await loadRelations();
    if (state.asked) await ask();
  } catch (error) {
    tellProblem(error);
  }
}

async function start() {
  const served = await get("/models");
  Object.assign(state, { models: served.models, graphs: served.graphs });
  fillChoice("model", served.models);
  fillChoice("graph", served.graphs);
  byId("about").textContent = served.models.length > 1 || served.graphs.length > 1 ? ""
    : `${served.models[0].name} on ${served.graphs[0].name}`;
  await loadRelations();
  await recall();
  if (!state.asked) byId("head").focus();
}

byId("question").addEventListener("submit", (event) => {
  event.preventDefault();
  state.k = FEW;
  ask();
});
byId("known").addEventListener("change", () => state.asked && ask());
byId("more").addEventListener("click", () => {
  state.k = MANY;
  ask();
});
byId("answers").addEventListener("keydown", (event) => {
  const buttons = answerButtons();
  const place = buttons.indexOf(document.activeElement);
  const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || !buttons[to]) return;
  event.preventDefault();
  buttons[to].focus();
});
for (const id of ["model", "graph"]) byId(id).addEventListener("change", changed);
addEventListener("popstate", recall);
start().catch(tellProblem);

// The page: a question, its answers, the evidence for one of them. The address holds all of it, so it can be shared.

import { newest, onTokenNeeded, post, get, wasAborted } from "./api.js";
import { Combobox } from "./combobox.js";
import { bare, byId, count, el, inverseOf, isInverse, percent, replace } from "./dom.js";
import { Evidence } from "./evidence.js";
import { Graphs } from "./graphs.js";

const FEW = 10, MANY = 50, PLACES = ["head", "relation", "tail"];
const askNewest = newest(post);
const state = { k: FEW, asked: null };

const evidence = new Evidence(tellProblem);
const graphs = new Graphs({ onQuestion: fillAndAsk, onChange: otherGraph, onProblem: tellProblem });
const fields = {
  head: new Combobox(byId("head"), byId("head-list"), completer(), () => byId("relation").focus()),
  relation: new Combobox(byId("relation"), byId("relation-list"), completeRelation, () => askIfTwo()),
  tail: new Combobox(byId("tail"), byId("tail-list"), completer(), () => askIfTwo()),
};

onTokenNeeded((wasWrong) => new Promise((resolve) => {
  const dialog = byId("token-dialog");
  dialog.querySelector("p").textContent = wasWrong ? "That token is not the right one." : "This server wants a token. It is kept in this tab only.";
  dialog.addEventListener("close", () => resolve(byId("token").value || null), { once: true });
  dialog.showModal();
}));

// completion

function completer() {
  const completeNewest = newest(get);
  return async (text) => {
    try {
      const found = await completeNewest("/entities", { prefix: text, limit: 12, graph: graphs.where.graph });
      return found.entities.map((one) => ({ value: one.entity, label: one.name ?? one.entity,
        hint: `${one.name ? `${one.entity} · ` : ""}${count(one.facts)} facts` }));
    } catch (error) {
      if (!wasAborted(error)) tellProblem(error);
      return null;
    }
  };
}

const relationLabel = (label) => {
  const row = graphs.relations.find((one) => one.relation === bare(label));
  const name = row?.name ?? bare(label);
  return isInverse(label) ? `← ${name}` : name;
};

function completeRelation(text) {
  const wanted = text.replace("←", "").trim().toLowerCase();
  const onwards = graphs.relations.map(({ relation, facts }) => ({ value: relation, label: relationLabel(relation), hint: `${count(facts)} facts` }));
  const back = graphs.relations.map(({ relation }) => ({ value: inverseOf(relation), label: relationLabel(inverseOf(relation)), hint: "asks for heads" }));
  return [...onwards, ...back].filter(({ label }) => label.toLowerCase().includes(wanted))
    .sort((one, other) => Number(other.label.toLowerCase().startsWith(wanted)) - Number(one.label.toLowerCase().startsWith(wanted)));
}

// A typed relation by its label or as shown here.
function typedRelation() {
  const { value, chosen } = fields.relation;
  if (value === null || chosen !== null) return value;
  const all = graphs.relations.flatMap((row) => [row.relation, inverseOf(row.relation)]);
  return all.find((label) => label === value || relationLabel(label) === value) ?? value;
}

// asking

const openPlaces = (asked) => PLACES.filter((place) => !asked[place]);
const typed = () => ({ head: fields.head.value, relation: typedRelation(), tail: fields.tail.value });
const askIfTwo = () => openPlaces(typed()).length < 2 && ask();

function fill(asked) {
  fields.head.set(asked.head);
  fields.relation.set(asked.relation, asked.relation && relationLabel(asked.relation));
  fields.tail.set(asked.tail ?? null);
}

function fillAndAsk(asked) {
  fill(asked);
  state.k = FEW;
  ask();
}

async function ask(answer = null) {
  const asked = typed(), open = openPlaces(asked);
  if (open.length > 1) {
    const missing = open.includes("head") && open.includes("tail") ? "head" : open[0] === "head" ? "head" : "relation";
    tellProblem(new Error(missing === "head" ? "Name an entity to ask about." : "Choose a relation, or name the other entity."));
    byId(missing).focus();
    return;
  }
  state.asked = { ...asked, ...graphs.where };
  clearProblem();
  byId("status").textContent = open.length ? "Asking…" : "Checking…";
  try {
    if (open.length) await tellAnswers(await askNewest("/predict", { ...state.asked, k: state.k, known: byId("known").checked }), answer);
    else await tellVerdict(await askNewest("/check", { claims: [asked], ...graphs.where }));
  } catch (error) {
    if (!wasAborted(error)) tellProblem(error);
  }
}

function begin(title) {
  evidence.hide();
  byId("welcome").hidden = true;
  byId("result").hidden = false;
  byId("answers-title").textContent = title;
}

const titled = () => `(${PLACES.map((place) => (state.asked[place] ? (place === "relation" ? relationLabel(state.asked.relation) : fields[place].input.value) : "?")).join(", ")})`;

async function tellAnswers(found, answer) {
  const { answers } = found;
  begin(titled());
  byId("verdict").hidden = true;
  byId("answers-told").textContent = told(found);
  byId("answers-told").hidden = !told(found);
  replace(byId("answers"), ...answers.map((one, place) => answerItem(one, place + 1)));
  if (!answers.length) replace(byId("answers"), el("li", { class: "muted" }, "The graph already holds every answer."));
  byId("more").hidden = answers.length < state.k || state.k >= MANY;
  byId("status").textContent = `${answers.length} answers`;
  remember(answer);
  if (answer !== null) await choose(answer);
}

function answerItem(answer, rank) {
  const label = answer.entity ?? answer.relation;
  return el("li", {}, el("button", { type: "button", "data-entity": label, onclick: () => choose(label) },
    el("span", { class: "rank" }, rank), el("span", { class: "name" }, answer.name ?? label,
      answer.known ? el("span", { class: "tag" }, "known") : null),
    el("span", { class: "chance" }, answer.probability === null ? answer.score.toFixed(2) : percent(answer.probability)), bar(answer.probability)));
}

function bar(share) {
  const mark = el("span", { class: "bar" }, el("span", { class: "fill" }));
  mark.firstChild.style.width = `${100 * (share ?? 0)}%`;
  return mark;
}

// What there is to say above the answers: what the graph holds already, whom the walk reached, that none is likely.
function told({ known, num_known, bet, considered, num_entities }) {
  const more = num_known > known.length ? ` and ${num_known - known.length} more` : "";
  const held = num_known ? `Already in the graph: ${known.join(", ")}${more}. ` : "";
  const some = considered < num_entities ? `Considered ${considered.toLocaleString("en")} of ${num_entities.toLocaleString("en")} entities. ` : "";
  return held + some + (bet === false ? "None that I would bet on." : "");
}

// How plausible a fact is, with what speaks for and against it; its evidence beside that.
async function tellVerdict({ claims: [claim] }) {
  begin(titled());
  byId("answers-told").hidden = true;
  byId("more").hidden = true;
  replace(byId("answers"));
  const against = claim.against.map((text) => el("li", {}, text));
  replace(byId("verdict"),
    el("p", { class: "plausible" }, el("strong", {}, percent(claim.probability)), " plausible", bar(claim.probability)),
    el("p", { class: "muted small" }, `${claim.known ? "The graph holds it; it was hidden first. " : ""}As the answer it ranks ${count(claim.tail_rank)}, asked the other way round ${count(claim.head_rank)}.`),
    el("h3", {}, "For it"), el("p", {}, claim.evidence ?? "No path leads from one to the other."),
    el("h3", {}, "Against it"), against.length ? el("ul", {}, ...against) : el("p", { class: "muted" }, "Nothing that could be counted."));
  byId("verdict").hidden = false;
  byId("status").textContent = "Checked";
  remember(null);
  await showEvidence({ head: claim.head, relation: claim.relation, tail: claim.tail });
}

const answerButtons = () => [...byId("answers").querySelectorAll("button")];

async function choose(answer) {
  for (const button of answerButtons()) {
    if (button.dataset.entity === answer) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  const { head, relation, tail } = state.asked;
  if (!head) await showEvidence({ head: tail, relation: inverseOf(relation), tail: answer }, answer);
  else await showEvidence({ head, relation: relation ?? answer, tail: tail ?? answer }, answer);
}

async function showEvidence(fact, answer = null) {
  byId("status").textContent = "Looking for the evidence…";
  clearProblem();
  try {
    await evidence.show(graphs.where, fact, graphs.model);
    byId("status").textContent = answer === null ? "Checked" : `Evidence for ${answer}`;
    if (answer !== null) remember(answer);
    if (answer !== null && matchMedia("(max-width: 900px)").matches) byId("evidence").scrollIntoView({ block: "start" });
  } catch (error) {
    if (wasAborted(error)) return;
    evidence.hide();
    tellProblem(error, true);
  }
}

// problems

function clearProblem() {
  byId("problem").hidden = true;
}

// What was found before has nothing to do with what went wrong now, so it goes; answers stay where only their evidence failed.
function tellProblem(error, keepAnswers = false) {
  const box = byId("problem");
  const suggestions = (error.items ?? []).flatMap((item) => item.closest.map((text) => item.kind === "file" ? graphs.readWith(text)
    : el("button", { type: "button", class: "quiet", onclick: () => useInstead(item, text) }, text)));
  replace(box, el("p", {}, error.message), ...(suggestions.length ? [el("p", {}, ...suggestions)] : []));
  box.hidden = false;
  byId("status").textContent = "";
  if (keepAnswers === true) return;
  evidence.hide();
  byId("result").hidden = true;
}

function useInstead({ kind, name }, text) {
  if (kind === "relation") fields.relation.set(text, relationLabel(text));
  else (fields.tail.value === name ? fields.tail : fields.head).set(text);
  ask();
}

// the address

function remember(answer) {
  const { asked } = state;
  const parts = new URLSearchParams();
  for (const key of [...PLACES, "model", "graph"]) if (asked[key]) parts.set(key, asked[key]);
  if (answer) parts.set("answer", answer);
  if (`#${parts}` !== location.hash) history.pushState(null, "", `#${parts}`);
}

async function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const asked = Object.fromEntries(PLACES.map((place) => [place, parts.get(place)]));
  if (openPlaces(asked).length > 1) return;
  graphs.choose({ model: parts.get("model"), graph: parts.get("graph") });
  fill(asked);
  await ask(parts.get("answer"));
}

// the start

// Another graph or model: the same question, but none of a file that has just come in.
async function otherGraph(isNew = false) {
  clearProblem();
  if (!isNew) return state.asked ? ask() : null;
  state.asked = null;
  fill({});
  evidence.hide();
  byId("result").hidden = true;
  byId("welcome").hidden = false;
  history.pushState(null, "", location.pathname);
}

async function start() {
  await graphs.load();
  graphs.choose(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  await graphs.describe();
  await recall();
  if (!state.asked) byId("head").focus();
}

byId("question").addEventListener("submit", (event) => {
  event.preventDefault();
  state.k = FEW;
  ask();
});
byId("question").addEventListener("input", () => {
  const open = openPlaces(typed()).length;
  byId("ask").textContent = open ? "Ask" : "Check";
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
addEventListener("popstate", recall);
start().catch(tellProblem);

// The evidence for one fact: picture, sliders where the model pools, paths, context, JSON.

import { newest, wasAborted } from "./api.js";
import { bare, byId, count, el, isInverse, percent, replace } from "./dom.js";
import { Drawing } from "./drawing.js";

const PATHS = 5;
const poolNewest = newest();
const explainNewest = newest();

export class Evidence {
  constructor(onProblem) {
    this.onProblem = onProblem;
    this.drawing = new Drawing(byId("picture"));
    for (const id of ["min-precision", "min-recall"]) byId(id).addEventListener("input", () => this.poolAgain());
    byId("reset").addEventListener("click", () => {
      this.setThresholds(this.own);
      this.poolAgain();
    });
    byId("copy").addEventListener("click", () => this.copy());
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - width) > 4 && !byId("evidence").hidden) this.drawing.redraw();
      width = entry.contentRect.width;
    }).observe(byId("picture"));
  }

  hide() {
    byId("evidence").hidden = true;
    this.why = null;
  }

  // where: {model, graph}; fact: {head, relation, tail}; own: the model's thresholds and hops, and whether it pools
  async show(where, fact, own) {
    Object.assign(this, { where, fact, own });
    const why = await explainNewest("/explain", { ...where, ...fact, paths: PATHS });
    this.why = why;
    this.names = new Map(Object.entries(why.names));
    this.focus = [...new Set(why.paths.flatMap((path) => path.edges.flatMap(([from, , to]) => [from, to])))]
      .filter((entity) => entity !== why.head).slice(0, 24);
    this.setThresholds(own);
    const view = await this.pool();
    for (const [label, name] of Object.entries(view.names)) this.names.set(label, name);
    byId("evidence").hidden = false;
    byId("evidence").classList.toggle("pools", own.pools);
    this.tell();
    this.drawing.draw(why, view, own.pools, (label) => this.shown(label));
    this.tellPooled(view);
  }

  shown(label) {
    const name = this.names.get(label) ?? this.names.get(bare(label)) ?? bare(label);
    return isInverse(label) ? `← ${name}` : name;
  }

  setThresholds({ min_precision, min_recall }) {
    byId("min-precision").value = min_precision;
    byId("min-recall").value = min_recall;
    this.tellThresholds();
  }

  tellThresholds() {
    for (const id of ["min-precision", "min-recall"]) byId(`${id}-value`).textContent = Number(byId(id).value).toFixed(2);
  }

  pool() {
    return poolNewest("/pool", { ...this.where, ...this.fact, focus: this.focus, hops: this.own.hops,
      min_precision: byId("min-precision").value, min_recall: byId("min-recall").value });
  }

  async poolAgain() {
    this.tellThresholds();
    try {
      const view = await this.pool();
      this.drawing.colour(view);
      this.tellPooled(view);
    } catch (error) {
      if (!wasAborted(error)) this.onProblem(error);
    }
  }

  tell() {
    const { why } = this;
    replace(byId("evidence-title"), this.shown(why.answer));
    const chance = why.probability === null ? "" : `${percent(why.probability)} likely, `;
    const known = why.known ? "; the graph holds it, so it was hidden first" : "";
    byId("standing").textContent = `${chance}rank ${count(why.rank)} of ${count(why.candidates)} `
      + `for (${this.shown(why.head)}, ${this.shown(why.relation)}, ?)${known}`;
    const paths = why.paths.map((path) => el("li", {}, el("span", { class: "weight" }, `${Math.round(100 * path.weight)} %`),
      el("span", { class: "walk" }, ...this.walk(path))));
    replace(byId("paths"), ...(paths.length ? paths : [el("li", { class: "none muted" }, "no path within the model's reach leads there")]));
    byId("rival").textContent = this.rival();
    byId("json").textContent = JSON.stringify(why, null, 2);
  }

  walk(path) {
    const steps = [el("strong", {}, this.shown(path.edges[0][0]))];
    for (const [, relation, to] of path.edges) {
      const name = this.shown(bare(relation));
      steps.push(el("span", { class: "step" }, isInverse(relation) ? ` ← ${name} — ` : ` — ${name} → `), el("strong", {}, this.shown(to)));
    }
    return steps;
  }

  rival() {
    const { rival } = this.why;
    if (!rival) return "";
    const chance = rival.probability === null ? "" : ` (${percent(rival.probability)})`;
    const lacks = rival.lacks.map((pattern) => pattern.map((one) => this.shown(one)).join(" · ")).join(" or ");
    return `Closest rival: ${this.shown(rival.entity)}${chance}${lacks ? `; no way there by ${lacks}` : ""}.`;
  }

  tellPooled(view) {
    replace(byId("counts"), ...view.hops.flatMap(({ hop, kept, reached }) => [
      el("span", { class: "hop" }, `hop ${hop}: `, el("strong", {}, count(kept)), ` of ${count(reached)} edges`)]));
    const { pools } = this.own;
    const rows = view.context.filter((row) => row.relation !== this.fact.relation).map((row) => el("tr", { class: pools && !row.kept ? "dropped" : "kept" },
      el("th", { scope: "row" }, this.shown(row.relation)), measure(row.precision), measure(row.recall),
      el("td", {}, row.facts || ""), el("td", { class: "of-pooling" }, row.kept ? "yes" : "")));
    replace(byId("context").tBodies[0], ...rows);
  }

  async copy() {
    const button = byId("copy");
    try {
      await navigator.clipboard.writeText(byId("json").textContent);
    } catch {
      getSelection().selectAllChildren(byId("json"));
      document.execCommand("copy"); // where the clipboard is kept from pages without TLS
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}

function measure(share) {
  const bar = el("span", { class: "bar" }, el("span", { class: "fill" }));
  bar.firstChild.style.width = `${100 * share}%`;
  return el("td", { class: "measure" }, bar, el("span", {}, share.toFixed(2)));
}

// What is asked: the models and graphs there are, questions to begin with, and files that are dropped.

import { get, sendFile } from "./api.js";
import { byId, count, el, replace } from "./dom.js";

const MEGABYTE = 2 ** 20;

export class Graphs {
  // onQuestion({head, relation}) for an example; onChange() when another graph or model is chosen
  constructor({ onQuestion, onChange, onProblem }) {
    Object.assign(this, { onQuestion, onChange, onProblem, models: [], graphs: [], relations: [], most: 0, sent: null });
    for (const id of ["model", "graph"]) byId(id).addEventListener("change", () => this.changed());
    byId("file").addEventListener("change", () => this.send(byId("file").files[0]));
    addEventListener("dragover", (event) => {
      if (!this.most || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!this.most || !event.dataTransfer.files.length) return;
      event.preventDefault();
      this.send(event.dataTransfer.files[0]);
    });
  }

  get where() {
    return { model: byId("model").value || null, graph: byId("graph").value || null };
  }

  get model() {
    return this.models.find((one) => one.name === byId("model").value) ?? this.models[0];
  }

  choose(where) {
    for (const key of ["model", "graph"]) if (where[key]) byId(key).value = where[key];
  }

  async load() {
    const served = await get("/models");
    Object.assign(this, { models: served.models, graphs: served.graphs, most: served.max_upload });
    for (const [id, rows] of [["model", this.models], ["graph", this.graphs]]) {
      const before = byId(id).value;
      replace(byId(id), ...rows.map((row) => el("option", { value: row.name }, row.name)));
      if (rows.some((row) => row.name === before)) byId(id).value = before;
      byId(`${id}-choice`).hidden = rows.length < 2;
    }
    byId("about").textContent = this.models.length > 1 || this.graphs.length > 1 ? "" : `${this.models[0].name} on ${this.graphs[0].name}`;
    byId("drop").hidden = !this.most;
    byId("drop-limit").textContent = `Up to ${Math.max(1, Math.round(this.most / MEGABYTE))} MB. It stays in the memory of this server, until that ends.`;
  }

  async describe() {
    this.relations = (await get("/relations", this.where)).relations;
    const graph = this.graphs.find((one) => one.name === byId("graph").value);
    byId("size").textContent = `${graph.name}: ${count(graph.entities)} entities, ${count(graph.relations)} relations, ${count(graph.facts)} facts.`;
    replace(byId("examples"));
    get("/examples", this.where).then(({ examples }) => replace(byId("examples"), ...examples.map((one) => this.example(one))), () => {});
  }

  example({ head, relation, head_name, relation_name }) {
    const told = [el("strong", {}, head_name ?? head), el("span", { class: "step" }, ` — ${relation_name ?? relation} → `), "?"];
    return el("li", {}, el("button", { type: "button", class: "quiet", onclick: () => this.onQuestion({ head, relation }) }, ...told));
  }

  async changed() {
    this.tellRemarks([]);
    try {
      await this.describe();
      await this.onChange();
    } catch (error) {
      this.onProblem(error);
    }
  }

  // options: how to read the file, as the server suggested
  async send(file, options = "") {
    if (!file) return;
    this.sent = file;
    byId("status").textContent = `Reading ${file.name}…`;
    try {
      if (file.size > this.most) throw new Error(`${file.name} is larger than ${this.most / MEGABYTE} MB. Serve it by its name: contextpool serve ${file.name}`);
      const { graph, remarks } = await sendFile("/graphs", { name: file.name, options }, file);
      await this.load();
      byId("graph").value = graph.name;
      await this.describe();
      byId("status").textContent = `${file.name} can be asked now.`;
      await this.onChange(true);
      this.tellRemarks(remarks);
    } catch (error) {
      this.onProblem(error);
    }
    byId("file").value = "";
  }

  readWith(options) {
    return el("button", { type: "button", class: "quiet", onclick: () => this.send(this.sent, options) }, `Read it with ${options}`);
  }

  tellRemarks(remarks) {
    replace(byId("remarks"), ...remarks.map(({ message, options }) => el("p", {}, `${message} `, options ? this.readWith(options) : null)));
    byId("remarks").hidden = !remarks.length;
  }
}

// The picture itself: drawn once for an answer, then only coloured anew as thresholds move.

import { bare, isInverse, replace, svg } from "./dom.js";
import { arranged, pictureOf } from "./layout.js";

const NARROW = 560; // pixels

export class Drawing {
  constructor(box) {
    this.box = box;
  }

  // why: an explanation; view: a pooled graph with the facts around it
  draw(why, view, shown) {
    const given = why.asked === "tail" ? why.head : why.tail;
    Object.assign(this, { why, view, shown, given });
    const width = Math.max(300, Math.floor(this.box.clientWidth));
    const narrow = width < NARROW;
    this.width = width;
    this.picture = pictureOf(given, why.answer, why.paths, view.facts);
    const relevance = new Map(view.context.map((row) => [row.relation, row.precision]));
    const size = arranged(this.picture, given, why.answer, relevance, width, narrow);
    this.columnWidth = (width - 52) / Math.max(1, size.columns - 1);
    const root = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height,
      role: "img", "aria-label": this.summary(), class: narrow ? "narrow" : "wide" });
    const lines = svg("g"), labels = svg("g"), dots = svg("g");
    this.taken = [];
    for (const edge of this.picture.edges) this.addEdge(edge, lines);
    for (const node of this.picture.nodes.values()) this.addNode(node, dots);
    this.addGroups(labels);
    this.addPathLabels(labels);
    root.append(lines, labels, dots);
    replace(this.box, root);
    this.colour(view);
  }

  redraw() {
    if (this.why) this.draw(this.why, this.view, this.shown);
  }

  summary() {
    const count = this.why.paths.length;
    return `${count} paths lead from ${this.shown(this.given)} to ${this.shown(this.why.answer)}; they are listed below.`;
  }

  addEdge(edge, lines) {
    const { nodes } = this.picture;
    const [from, to] = ordered(nodes.get(edge.head), nodes.get(edge.tail));
    edge.line = svg("path", { d: curve(from, to), class: "edge", "stroke-width": edge.weight ? 1.5 + 4 * edge.weight : 1 },
      svg("title", {}, `${this.shown(edge.head)} — ${this.shown(edge.relation)} → ${this.shown(edge.tail)}`));
    lines.append(edge.line);
  }

  // One label for all relations by which paths lead from one entity to the next; below the line, names stand above.
  addPathLabels(labels) {
    const { nodes } = this.picture;
    const pairs = new Map();
    for (const edge of this.picture.edges.filter((one) => one.weight)) {
      const [from, to] = ordered(nodes.get(edge.head), nodes.get(edge.tail));
      if (from.column === 0 && to.column === 1) continue; // told beside the neighbour
      const key = JSON.stringify([from.entity, to.entity]);
      const pair = pairs.get(key) ?? { from, to, names: new Map(), weight: 0 };
      pair.weight += edge.weight;
      const name = this.shown(edge.relation), isOnwards = edge.head === from.entity;
      pair.names.set(name, [...(pair.names.get(name) ?? []), isOnwards]);
      pairs.set(key, pair);
    }
    const heaviest = [...pairs.values()].sort((one, other) => other.weight - one.weight);
    labels.append(...heaviest.map((pair) => this.pathLabel(pair)).filter((label) => label !== null));
  }

  // Where no other text stands; nowhere if there is no such place: the list below tells all paths anyway.
  pathLabel({ from, to, names }) {
    const told = [...names].map(([name, ways]) => (ways.includes(true) ? (ways.includes(false) ? `← ${name} →` : `${name} →`) : `← ${name}`));
    const text = this.cut(told.join(", "), this.columnWidth * 0.95, 6);
    const anchor = from.column === to.column ? "end" : "middle";
    const place = spots(from, to, to.entity === this.why.answer).find((spot) => this.isFree(spot.x, spot.y, text, anchor));
    if (!place) return null;
    return this.text(place.x, place.y, text, anchor, "relation on-path");
  }

  // Text, remembered so that no other is written over it.
  text(x, y, text, anchor, kind = null, size = 6) {
    this.taken.push(box(x, y, text, anchor, size));
    return svg("text", { x, y, "text-anchor": anchor, class: kind }, text);
  }

  isFree(x, y, text, anchor) {
    const own = box(x, y, text, anchor, 6);
    return own.left > 0 && own.right < this.width && !this.taken.some((other) => own.left < other.right && other.left < own.right
      && own.top < other.bottom && other.top < own.bottom);
  }

  // One label for all neighbours by the same relation, left of the first of them.
  addGroups(labels) {
    const column = [...this.picture.nodes.values()].filter((node) => node.column === 1 && node.group);
    column.sort((one, other) => one.y - other.y);
    let before = null;
    this.groups = [];
    for (const node of column) {
      if (node.group === before) continue;
      before = node.group;
      const name = this.cut(this.shown(bare(node.group)), this.columnWidth - 34, 6);
      const label = this.text(node.x - 9, node.y + 3.5, isInverse(node.group) ? `← ${name}` : `${name} →`, "end", "relation");
      this.groups.push({ label, group: node.group, node });
      labels.append(label);
    }
  }

  addNode(node, dots) {
    const isGiven = node.entity === this.given, isAnswer = node.entity === this.why.answer;
    const isEnd = isGiven || isAnswer;
    const radius = isEnd ? 7 : node.onPath ? 5 : 3.5;
    const text = this.cut(this.shown(node.entity), isEnd ? this.width / 2 - 20 : this.columnWidth - 22, isEnd ? 7.8 : 6.2);
    const x = isGiven ? node.x - 10 : isAnswer ? node.x + 10 : node.x + radius + 4;
    const y = isEnd ? 16 : node.onPath ? node.y - 6 : node.y + 3.5; // both ends have their names on top
    node.mark = svg("g", { class: "node" },
      svg("circle", { cx: node.x, cy: node.y, r: radius }),
      this.text(x, y, text, isAnswer && !isGiven ? "end" : "start", null, isEnd ? 7.8 : 6.2),
      svg("title", {}, this.shown(node.entity)));
    if (isGiven) node.mark.classList.add("given");
    if (isAnswer) node.mark.classList.add("answer");
    if (node.onPath) node.mark.classList.add("on-path");
    dots.append(node.mark);
  }

  // Which edges and entities the pooled graph holds.
  colour(view) {
    this.view = view;
    const hops = new Map(view.facts.map((fact) => [JSON.stringify([fact.head, fact.relation, fact.tail]), fact.hop]));
    const kept = new Set([this.given]);
    for (const edge of this.picture.edges) {
      const isKept = (hops.get(edge.key) ?? null) !== null;
      edge.line.setAttribute("class", `edge ${edge.weight ? "on-path" : ""} ${isKept ? "kept" : "dropped"}`);
      if (isKept) kept.add(edge.head).add(edge.tail);
    }
    for (const node of this.picture.nodes.values()) {
      node.mark.classList.toggle("dropped", !kept.has(node.entity));
      node.mark.classList.toggle("kept", kept.has(node.entity));
    }
    for (const { label, node } of this.groups) {
      label.classList.toggle("dropped", !kept.has(node.entity));
      label.classList.toggle("on-path", node.onPath);
    }
  }

  cut(text, room, each) {
    const most = Math.max(4, Math.floor(room / each));
    return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
  }
}

function curve(from, to) {
  if (from === to) return `M ${from.x} ${from.y} c 14 -18 26 10 0 0`;
  if (from.column === to.column) {
    const bend = Math.min(46, 12 + Math.abs(to.y - from.y) / 3);
    return `M ${from.x} ${from.y} C ${from.x - bend} ${from.y}, ${to.x - bend} ${to.y}, ${to.x} ${to.y}`;
  }
  const middle = (from.x + to.x) / 2;
  return `M ${from.x} ${from.y} C ${middle} ${from.y}, ${middle} ${to.y}, ${to.x} ${to.y}`;
}

// Where a label of a line may stand, the best first: below the line, where it is farthest from others.
function spots(from, to, converges) {
  if (from.column === to.column) return [0.5, 0.3, 0.7].map((share) => ({ x: from.x - 22, y: from.y + (to.y - from.y) * share + 4 }));
  const shares = converges ? [0.42, 0.34, 0.5, 0.6, 0.7] : from.y === to.y ? [0.5, 0.6, 0.4, 0.7] : [0.62, 0.5, 0.72, 0.4, 0.8];
  return [12, -5, 20].flatMap((below) => shares.map((share) => ({
    x: from.x + (to.x - from.x) * share,
    y: from.y + (to.y - from.y) * share * share * (3 - 2 * share) + below, // near enough to the curve
  })));
}

// What a text covers, by the usual width of a letter.
function box(x, y, text, anchor, each) {
  const width = text.length * each;
  const left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
  return { left, right: left + width, top: y - 9, bottom: y + 3 };
}

// From left to right, else from top to bottom.
const ordered = (one, other) => (one.column < other.column || (one.column === other.column && one.y <= other.y) ? [one, other] : [other, one]);

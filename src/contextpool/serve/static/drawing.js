// The picture of an explanation: a lane for every path, from the entity asked about to the answer, and below them other
// facts of that entity, a row for each relation. Lines run along lanes and down both sides, names stand above lanes and
// relations below them, each cut to its room: so no line ever runs through a name. Thresholds only colour it anew.

import { bare, inverseOf, isInverse, replace, svg } from "./dom.js";

const SIDE = 16, TOP = 62, LANE = 48, ROW = 22, BEND = 9, NAMES = 18;
const ROWS = 12; // relations of the entity that are shown
const factKey = ({ head, relation, tail }) => JSON.stringify([head, relation, tail]);

// A walked edge as the fact behind it.
const factOf = ([from, relation, to]) =>
  isInverse(relation) ? { head: to, relation: inverseOf(relation), tail: from } : { head: from, relation, tail: to };

export class Drawing {
  constructor(box) {
    this.box = box;
  }

  // why: an explanation; view: a pooled graph with the facts around it; pools: whether the model walks that graph
  draw(why, view, pools, shown) {
    Object.assign(this, { why, view, pools, shown, given: why.asked === "tail" ? why.head : why.tail, parts: [] });
    this.width = Math.max(280, Math.floor(this.box.clientWidth));
    const groups = this.around();
    const lanes = why.paths.map((path, place) => ({ ...path, y: TOP + place * LANE }));
    const end = TOP + Math.max(1, lanes.length) * LANE - (lanes.length ? 4 : 20);
    const height = end + groups.length * ROW + (groups.length ? 12 : 0);
    const middle = lanes.length ? (lanes[0].y + lanes.at(-1).y) / 2 : TOP;
    this.left = { x: SIDE, y: middle };
    this.right = { x: this.width - SIDE, y: middle };
    const root = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, width: this.width, height, role: "img", "aria-label": this.summary() });
    this.layers = { lines: svg("g"), texts: svg("g"), dots: svg("g") };
    root.append(...Object.values(this.layers));
    replace(this.box, root); // texts are measured from here on
    const half = this.width / 2 - 12;
    this.node(this.given, this.left, 7, { x: 4, y: NAMES, anchor: "start", room: half, kind: "given on-path" });
    this.node(why.answer, this.right, 7, { x: this.width - 4, y: NAMES, anchor: "end", room: half, kind: "answer on-path" });
    for (const lane of lanes) this.lane(lane);
    groups.forEach((group, place) => this.group(group, end + 14 + place * ROW));
    this.colour(view);
  }

  redraw() {
    if (this.why) this.draw(this.why, this.view, this.pools, this.shown);
  }

  summary() {
    const count = this.why.paths.length;
    return `${count} paths lead from ${this.shown(this.given)} to ${this.shown(this.why.answer)}; they are listed below.`;
  }

  // Other facts of the entity by relation, the most relevant first.
  around() {
    const walked = new Set(this.why.paths.flatMap((path) => path.edges.map((edge) => factKey(factOf(edge)))));
    const relevance = new Map(this.view.context.map((row) => [row.relation, row.precision]));
    const groups = new Map();
    for (const fact of this.view.facts) {
      if ((fact.head !== this.given && fact.tail !== this.given) || walked.has(factKey(fact))) continue;
      const relation = fact.head === this.given ? fact.relation : inverseOf(fact.relation);
      const group = groups.get(relation) ?? { relation, facts: [] };
      group.facts.push({ key: factKey(fact), entity: fact.head === this.given ? fact.tail : fact.head });
      groups.set(relation, group);
    }
    const rank = ({ relation }) => relevance.get(relation) ?? 0;
    return [...groups.values()].sort((one, other) => rank(other) - rank(one) || (one.relation < other.relation ? -1 : 1)).slice(0, ROWS);
  }

  lane({ edges, weight, y }) {
    const step = (this.right.x - this.left.x) / edges.length;
    const at = (place) => this.left.x + place * step;
    edges.forEach((edge, place) => {
      const start = place === 0 ? corner(this.left, y, at(0) + BEND) : `M ${at(place)} ${y}`;
      const isLast = place === edges.length - 1;
      const end = isLast ? `H ${at(place + 1) - BEND} ${cornerTo(this.right, y)}` : `H ${at(place + 1)}`;
      const fact = factOf(edge);
      this.line(`${start} ${end}`, [factKey(fact)], "on-path", 1.5 + 4 * Math.max(0, weight),
        `${this.shown(fact.head)} — ${this.shown(fact.relation)} → ${this.shown(fact.tail)}`);
      this.text(this.told(edge[1]), { x: at(place) + step / 2, y: y + 16, anchor: "middle", room: step - 2 * BEND, kind: "relation on-path" });
      if (!isLast) this.node(edge[2], { x: at(place + 1), y }, 5, { x: at(place + 1), y: y - 10, anchor: "middle", room: step - 8, kind: "on-path" });
    });
  }

  // A relation of the entity, and as many of those it leads to as have room.
  group({ relation, facts }, y) {
    this.line(`M ${this.left.x} ${this.left.y} V ${y - BEND} q 0 ${BEND} ${BEND} ${BEND} h 4`, facts.map(({ key }) => key), "", 1);
    let x = this.left.x + BEND + 10;
    x += this.text(this.told(relation), { x, y: y + 3.5, anchor: "start", room: this.width * 0.4, kind: "relation" }) + 12;
    for (const [place, { entity, key }] of facts.entries()) {
      const left = facts.length - place, room = this.width - x - (left > 1 ? 62 : 14);
      if (room < 60) {
        this.text(`and ${left} more`, { x, y: y + 3.5, anchor: "start", room: this.width - x, kind: "relation" });
        break;
      }
      x += this.node(entity, { x, y }, 3.5, { x: x + 8, y: y + 3.5, anchor: "start", room: Math.min(room, 170), kind: "" }, key) + 22;
    }
  }

  told(relation) {
    const name = this.shown(bare(relation));
    return isInverse(relation) ? `← ${name}` : `${name} →`;
  }

  line(d, keys, kind, width, title = "") {
    const mark = svg("path", { d, class: `edge ${kind}`, "stroke-width": width }, title ? svg("title", {}, title) : null);
    this.layers.lines.append(mark);
    this.parts.push({ mark, keys });
  }

  // A dot with its name; returns how wide the name is.
  node(entity, { x, y }, radius, name, key = null) {
    const mark = svg("g", { class: `node ${name.kind}` }, svg("circle", { cx: x, cy: y, r: radius }), svg("title", {}, this.shown(entity)));
    this.layers.dots.append(mark);
    if (key !== null) this.parts.push({ mark, keys: [key] });
    return this.text(this.shown(entity), { ...name, kind: null }, mark);
  }

  // Written into its room, cut where it is longer; returns its width.
  text(text, { x, y, anchor, room, kind }, parent = this.layers.texts) {
    const mark = svg("text", { x, y, "text-anchor": anchor, class: kind }, text);
    parent.append(mark);
    for (let kept = text.length; mark.getComputedTextLength() > room && kept > 1;) {
      kept = Math.min(kept - 1, Math.floor((kept * room) / mark.getComputedTextLength()));
      mark.textContent = `${text.slice(0, Math.max(1, kept))}…`;
    }
    return mark.getComputedTextLength();
  }

  // Which facts the pooled graph holds; nothing where the model does not pool.
  colour(view) {
    this.view = view;
    const kept = new Set(view.facts.filter((fact) => fact.hop !== null).map(factKey));
    for (const { mark, keys } of this.parts) {
      mark.classList.toggle("dropped", this.pools && !keys.some((key) => kept.has(key)));
    }
  }
}

// From an end down or up its side, and round into a lane.
function corner(from, y, x) {
  if (Math.abs(from.y - y) < BEND) return `M ${from.x} ${y}`;
  const way = Math.sign(y - from.y) * BEND;
  return `M ${from.x} ${from.y} V ${y - way} Q ${from.x} ${y} ${x} ${y}`;
}

// Out of a lane to an end.
function cornerTo(to, y) {
  if (Math.abs(to.y - y) < BEND) return `H ${to.x}`;
  const way = Math.sign(to.y - y) * BEND;
  return `Q ${to.x} ${y} ${to.x} ${y + way} V ${to.y}`;
}

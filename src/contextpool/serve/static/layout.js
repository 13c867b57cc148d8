// Where the entities of a picture stand: a column for each step away from the entity asked about, the answer last.
// Nothing here depends on the thresholds, so the picture keeps still while they move.

import { inverseOf, isInverse } from "./dom.js";

const factKey = (head, relation, tail) => JSON.stringify([head, relation, tail]);

// A walked edge as the fact behind it.
export function factOf([from, relation, to]) {
  return isInverse(relation) ? { head: to, relation: inverseOf(relation), tail: from } : { head: from, relation, tail: to };
}

// Facts and paths -> {nodes: Map(entity -> node), edges}; an edge knows the weight of the paths through it.
export function pictureOf(given, answer, paths, facts) {
  const edges = new Map();
  const add = (fact, weight) => {
    const key = factKey(fact.head, fact.relation, fact.tail);
    const edge = edges.get(key) ?? { key, ...fact, weight: 0 };
    edge.weight = Math.min(1, edge.weight + weight);
    edges.set(key, edge);
  };
  for (const path of paths) for (const edge of path.edges) add(factOf(edge), Math.max(path.weight, 0.02));
  for (const fact of facts) add({ head: fact.head, relation: fact.relation, tail: fact.tail }, 0);
  const onPath = new Set(paths.flatMap((path) => path.edges.flatMap(([from, , to]) => [from, to])));
  const nodes = placed(given, answer, [...edges.values()], onPath, stepsOnPaths(paths));
  return { nodes, edges: [...edges.values()].filter((edge) => nodes.has(edge.head) && nodes.has(edge.tail)) };
}

// Steps from the entity asked about, over all edges shown.
function distances(given, edges) {
  const next = new Map();
  const link = (one, other) => next.set(one, [...(next.get(one) ?? []), other]);
  for (const { head, tail } of edges) {
    link(head, tail);
    link(tail, head);
  }
  const found = new Map([[given, 0]]);
  let frontier = [given];
  while (frontier.length) {
    const reached = frontier.flatMap((entity) => next.get(entity) ?? []).filter((entity) => !found.has(entity));
    frontier = [...new Set(reached)];
    const step = Math.max(...found.values()) + 1;
    for (const entity of frontier) found.set(entity, step);
  }
  return found;
}

function placed(given, answer, edges, onPath, steps) {
  const distance = distances(given, edges);
  const last = Math.max(1, ...[...steps].filter(([entity]) => entity !== answer).map(([, place]) => place)) + 1;
  const nodes = new Map();
  for (const [entity, away] of distance) {
    const isPath = onPath.has(entity);
    if (away >= last && !isPath) continue; // the last column is the answer's
    const column = entity === given ? 0 : entity === answer ? last : isPath ? Math.min(steps.get(entity), last - 1) : away;
    nodes.set(entity, { entity, column, onPath: isPath, group: groupOf(entity, given, edges) });
  }
  if (!nodes.has(answer)) nodes.set(answer, { entity: answer, column: last, onPath: true, group: "" });
  return nodes;
}

// How far along its paths an entity stands, on average: so paths lead from left to right.
function stepsOnPaths(paths) {
  const sums = new Map();
  for (const { edges, weight } of paths) {
    edges.forEach(([, , to], place) => {
      const [steps, total] = sums.get(to) ?? [0, 0];
      sums.set(to, [steps + (place + 1) * (weight + 1e-6), total + weight + 1e-6]);
    });
  }
  return new Map([...sums].map(([entity, [steps, total]]) => [entity, Math.round(steps / total)]));
}

// By which relation an entity is a neighbour of the one asked about; "" where it is none.
function groupOf(entity, given, edges) {
  const own = edges.filter((edge) => (edge.head === given && edge.tail === entity) || (edge.tail === given && edge.head === entity));
  const best = own.sort((one, other) => other.weight - one.weight)[0];
  if (!best || entity === given) return "";
  return best.head === given ? best.relation : inverseOf(best.relation);
}

const MARGIN = 26;
const TOP = 48;

// Rows within columns: what the paths lead through on top, then neighbours by relation, the most relevant first.
export function arranged(picture, given, answer, relevance, width, narrow) {
  const { nodes, edges } = picture;
  const columns = [];
  for (const node of nodes.values()) (columns[node.column] ??= []).push(node);
  columns[1]?.sort(byRelevance(relevance));
  columns[1]?.forEach((node, place) => (node.order = place));
  for (const column of columns.slice(2)) {
    column?.forEach((node) => (node.order = anchor(node, nodes, edges)));
    column?.sort((one, other) => Number(other.onPath) - Number(one.onPath) || one.order - other.order || (one.entity < other.entity ? -1 : 1));
  }
  const rows = narrow ? { path: 36, other: 17 } : { path: 40, other: 19 };
  const ends = columns.map((column, number) => spread(column ?? [], number, columns.length, width, rows));
  const height = Math.max(narrow ? 200 : 240, ...ends) + 12;
  for (const end of [given, answer]) beside(nodes.get(end), nodes, edges, height);
  return { width, height, columns: columns.length };
}

function byRelevance(relevance) {
  const rank = (node) => relevance.get(node.group) ?? 0;
  return (one, other) => Number(other.onPath) - Number(one.onPath) || rank(other) - rank(one)
    || (one.group < other.group ? -1 : one.group > other.group ? 1 : 0) || (one.entity < other.entity ? -1 : 1);
}

const otherEnd = (edge, node, nodes) => nodes.get(edge.head === node.entity ? edge.tail : edge.head);
const touching = (edges, node) => edges.filter((edge) => edge.head === node.entity || edge.tail === node.entity);

function anchor(node, nodes, edges) {
  const near = touching(edges, node).map((edge) => otherEnd(edge, node, nodes))
    .filter((other) => other && other.column < node.column && other.order !== undefined).map((other) => other.order);
  return near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : 1e3;
}

// Places a column from the top down; returns where it ends.
function spread(column, number, columns, width, rows) {
  const x = MARGIN + (number / Math.max(1, columns - 1)) * (width - 2 * MARGIN);
  let y = TOP;
  for (const node of column) {
    Object.assign(node, { x, y });
    y += node.onPath ? rows.path : rows.other;
  }
  return y;
}

// Both ends stand at the height of what the paths lead through next to them.
function beside(node, nodes, edges, height) {
  const near = touching(edges, node).filter((edge) => edge.weight).map((edge) => otherEnd(edge, node, nodes)).filter((other) => other !== node);
  const inner = near.filter((other) => other.column > 0 && other.column < Math.max(...[...nodes.values()].map((one) => one.column)));
  node.y = inner.length ? inner.reduce((sum, other) => sum + other.y, 0) / inner.length : height / 2;
}

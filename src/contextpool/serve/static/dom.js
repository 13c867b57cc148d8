// Elements from plain values. Text is always set as text: a label never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return element;
}

export const el = (tag, properties = {}, ...children) => filled(document.createElement(tag), properties, children);
export const svg = (tag, properties = {}, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

export function replace(parent, ...children) {
  parent.replaceChildren(...children);
}

// "currency^-1" is walked from tail to head.
const INVERSE = "^-1";
export const isInverse = (relation) => relation.endsWith(INVERSE);
export const bare = (relation) => (isInverse(relation) ? relation.slice(0, -INVERSE.length) : relation);
export const inverseOf = (relation) => (isInverse(relation) ? bare(relation) : relation + INVERSE);

export const percent = (share) =>
  share === null ? "–" : share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
export const count = (number) => number.toLocaleString("en");

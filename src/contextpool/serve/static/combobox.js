// A text field with a list of suggestions, after the ARIA combobox pattern: arrows move, Enter takes, Escape closes.

import { el, replace } from "./dom.js";

const DELAY = 120; // milliseconds after the last key

export class Combobox {
  // source(text) -> [{value, label, hint}], or a promise of that; onChoose(value) when one is taken
  constructor(input, list, source, onChoose) {
    Object.assign(this, { input, list, source, onChoose, options: [], active: -1, chosen: null, timer: 0, asked: 0 });
    input.addEventListener("input", () => this.typed());
    input.addEventListener("keydown", (event) => this.pressed(event));
    input.addEventListener("focus", () => input.select());
    input.addEventListener("click", () => this.suggest());
    input.addEventListener("blur", () => this.close());
    list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
  }

  get value() {
    return this.chosen ?? (this.input.value.trim() || null);
  }

  set(value, label = value) {
    this.chosen = value;
    this.input.value = label ?? "";
    this.close();
  }

  typed() {
    this.chosen = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.suggest(), DELAY);
  }

  async suggest() {
    const number = ++this.asked;
    const text = this.chosen === null ? this.input.value.trim() : "";
    const options = await this.source(text);
    if (number !== this.asked || document.activeElement !== this.input || options === null) return;
    this.options = options;
    this.show();
  }

  show() {
    this.active = -1;
    replace(this.list, ...this.options.map((option, place) =>
      el("li", { role: "option", id: `${this.list.id}-${place}`, "aria-selected": "false", onclick: () => this.take(place) },
        el("span", {}, option.label), option.hint ? el("span", { class: "hint" }, option.hint) : null)));
    this.list.hidden = this.options.length === 0;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    clearTimeout(this.timer);
    this.asked += 1;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  move(to) {
    if (this.list.hidden || !this.options.length) return;
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = (to + this.options.length) % this.options.length;
    const item = this.list.children[this.active];
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", item.id);
  }

  take(place) {
    const option = this.options[place];
    this.set(option.value, option.label);
    this.onChoose(option.value);
  }

  async pressed(event) {
    const isOpen = !this.list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) await this.suggest();
      this.move(event.key === "ArrowDown" ? this.active + 1 : Math.max(this.active, 0) - 1);
    } else if (event.key === "Enter" && isOpen && this.active >= 0) {
      event.preventDefault();
      this.take(this.active);
    } else if (event.key === "Escape" && isOpen) {
      event.preventDefault();
      this.close();
    } else if (event.key === "Home" && isOpen && this.active >= 0) {
      event.preventDefault();
      this.move(0);
    } else if (event.key === "End" && isOpen && this.active >= 0) {
      event.preventDefault();
      this.move(this.options.length - 1);
    } else if (event.key === "Tab" && isOpen && this.active >= 0) {
      this.take(this.active);
    }
  }
}

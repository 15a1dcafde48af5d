// A list of thousands of rows of which only those near the screen exist. Up and Down move between rows.

import { h } from "./dom.js";

const AROUND = 12; // rows beyond what is seen

/** `make()` gives an empty row with `row.focusable`; `show(row, item)` puts an item into it. */
export class List {
  #items = [];
  #shown = new Map(); // rows by the key of their item
  #active = null;
  #asked = 0;

  constructor({ label, columns, key, make, show }) {
    this.key = key;
    this.make = make;
    this.show = show;
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.element = h("div", { class: "table", role: "table", "aria-label": label },
      h("div", { class: "head", role: "rowgroup" }, h("div", { class: "row", role: "row" }, columns)), this.body);
    this.body.addEventListener("keydown", (event) => this.#move(event));
    this.body.addEventListener("focusin", (event) => {
      const row = event.target.closest(".row");
      if (row) this.#active = row.dataset.key;
    });
    this.draw = this.draw.bind(this);
    this.later = () => (this.#asked ||= requestAnimationFrame(this.draw));
    document.addEventListener("scroll", this.later, { capture: true, passive: true });
    addEventListener("resize", this.later);
  }

  close() {
    document.removeEventListener("scroll", this.later, { capture: true });
    removeEventListener("resize", this.later);
  }

  set(items) {
    this.#items = items;
    this.element.setAttribute("aria-rowcount", items.length + 1);
    this.draw();
  }

  draw() {
    this.#asked = 0;
    const height = this.#height();
    this.body.style.height = `${this.#items.length * height}px`;
    const top = this.body.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / height) - AROUND);
    const until = Math.min(this.#items.length, Math.ceil((innerHeight - top) / height) + AROUND);
    const wanted = new Map();
    for (let place = from; place < until; place++) wanted.set(this.key(this.#items[place]), place);
    const spare = [];
    for (const [key, row] of this.#shown) {
      if (wanted.has(key)) continue;
      this.#shown.delete(key);
      if (row.contains(document.activeElement)) row.remove(); // its focus must not jump to another host
      else spare.push(row);
    }
    for (const [key, place] of wanted) {
      let row = this.#shown.get(key);
      if (!row) {
        row = spare.pop() ?? this.make();
        row.dataset.key = key;
        this.#shown.set(key, row);
        if (!row.isConnected) this.body.append(row);
      }
      row.style.transform = `translateY(${place * height}px)`;
      row.setAttribute("aria-rowindex", place + 2);
      this.show(row, this.#items[place]);
    }
    for (const row of spare) row.remove();
    this.#oneTabStop(wanted);
  }

  /** One row is reached by Tab, the others by the arrows. */
  #oneTabStop(wanted) {
    if (!wanted.has(this.#active)) this.#active = wanted.size ? this.key(this.#items[Math.min(...wanted.values())]) : null;
    for (const [key, row] of this.#shown) row.focusable.tabIndex = key === this.#active ? 0 : -1;
  }

  #height() {
    return parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 48;
  }

  #move(event) {
    const place = this.#items.findIndex((item) => this.key(item) === this.#active);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = Math.min(this.#items.length - 1, Math.max(0, place + steps[event.key]));
    if (next < 0) return;
    const height = this.#height(), top = this.body.getBoundingClientRect().top + next * height;
    const scroller = this.body.closest(".scroll");
    const view = scroller && scroller.scrollHeight > scroller.clientHeight ? scroller : document.scrollingElement;
    const start = view === scroller ? scroller.getBoundingClientRect().top + height : 100;
    const end = view === scroller ? scroller.getBoundingClientRect().bottom : innerHeight;
    if (top < start) view.scrollTop -= start - top;
    else if (top + height > end) view.scrollTop += top + height - end;
    this.#active = this.key(this.#items[next]);
    this.draw();
    this.#shown.get(this.#active)?.focusable.focus({ preventScroll: true });
  }
}

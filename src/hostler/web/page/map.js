// The map: one tile for each host, in groups. A tile stays where it is while its state changes.

import { fill, h, put, show } from "./dom.js";
import { stateOf } from "./states.js";

export const GROUPS = [
  ["cluster", "Cluster", (host) => host.cluster || "in no cluster"],
  ["esxi", "ESXi cluster", (host) => esxiCluster(host.where ?? {})],
  ["rack", "Rack", (host) => host.where?.rack || host.where?.failureDomain || "no rack known"],
  ["state", "State", (host) => host.state],
];
const NAMES = new Intl.Collator("en", { numeric: true });

function esxiCluster(where) {
  return where.vcenter ? [where.vcenter, where.computeCluster].filter(Boolean).join(" / ") : "no vCenter";
}

export class TileMap {
  #tiles = new Map();
  #groups = "";
  #active = null;

  constructor() {
    this.element = h("div", { class: "map" });
    this.element.addEventListener("keydown", (event) => this.#move(event));
    this.element.addEventListener("focusin", (event) => this.#activate(event.target.closest(".tile")));
  }

  /** All rows, how to group them, and which of them the filter admits. */
  set(rows, by, admits) {
    const groupOf = GROUPS.find(([key]) => key === by)?.[2] ?? GROUPS[0][2];
    const groups = new Map();
    for (const row of rows.values()) {
      const name = groupOf(row.host);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const names = [...groups.keys()];
    if (by === "state") names.sort((a, b) => stateOf(a).order - stateOf(b).order);
    else names.sort(NAMES.compare);
    const kept = this.#groups;
    this.#groups = JSON.stringify([by, names.map((name) => [name, groups.get(name).map((row) => row.host.id)])]);
    if (kept !== this.#groups) this.#build(names, groups);
    for (const row of rows.values()) {
      const tile = this.#tiles.get(row.host.id);
      this.#show(tile, row);
      tile.classList.toggle("dim", !admits(row));
    }
    if (kept === this.#groups) for (const [name, found] of groups) put(this.#counts.get(name), countText(found));
    this.element.classList.toggle("many", rows.size > 800);
  }

  #counts = new Map();

  #build(names, groups) {
    const focused = this.#active?.dataset.id;
    const old = this.#tiles;
    this.#tiles = new Map();
    this.#counts = new Map();
    fill(this.element, names.map((name) => {
      const found = groups.get(name).sort((a, b) => NAMES.compare(a.host.name, b.host.name));
      const counted = h("span", { class: "muted" }, countText(found));
      this.#counts.set(name, counted);
      const tiles = found.map((row) => {
        const tile = old.get(row.host.id) ?? h("a", { class: "tile", href: `#/host/${encodeURIComponent(row.host.id)}`, tabindex: "-1" });
        tile.dataset.id = row.host.id;
        this.#tiles.set(row.host.id, tile);
        return h("li", {}, tile);
      });
      return h("section", { class: "group" }, h("h3", {}, name, " ", counted), h("ul", { class: "tiles" }, tiles));
    }));
    this.#active = null;
    this.#activate(this.#tiles.get(focused) ?? this.#tiles.values().next().value);
  }

  #show(tile, row) {
    if (tile.row === row) return;
    tile.row = row;
    const { host, overdue } = row;
    const state = stateOf(host.state);
    const word = `${state.name}${overdue ? ", overdue" : ""}`;
    tile.className = `tile c-${state.colour}${overdue ? " late" : ""}`;
    put(tile, state.letter);
    tile.setAttribute("aria-label", show(`${host.name}: ${word}`));
    tile.title = show(`${host.name}: ${word}${host.why ? `\u2002${host.why}` : ""}`);
  }

  #activate(tile) {
    if (!tile) return;
    if (this.#active) this.#active.tabIndex = -1;
    this.#active = tile;
    tile.tabIndex = 0;
  }

  #move(event) {
    const from = event.target.closest(".tile");
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const tiles = [...this.#tiles.values()], place = tiles.indexOf(from);
    const to = {
      ArrowRight: () => tiles[place + 1],
      ArrowLeft: () => tiles[place - 1],
      ArrowDown: () => nearest(tiles.slice(place + 1), from, 1),
      ArrowUp: () => nearest(tiles.slice(0, place).reverse(), from, -1),
      Home: () => tiles[0],
      End: () => tiles.at(-1),
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    to.focus();
  }
}

function countText(rows) {
  const out = rows.filter((row) => stateOf(row.host.state).out).length;
  return out ? `${rows.length}, ${out} out` : `${rows.length}`;
}

/** Of the next line of tiles, the one under or over `from`. */
function nearest(tiles, from, direction) {
  const at = from.getBoundingClientRect();
  let line = null, best = null;
  for (const tile of tiles) {
    const box = tile.getBoundingClientRect();
    if ((box.top - at.top) * direction < 2) continue;
    if (line !== null && Math.abs(box.top - line) > 2) break;
    line = box.top;
    if (!best || Math.abs(box.left - at.left) < Math.abs(best.getBoundingClientRect().left - at.left)) best = tile;
  }
  return best;
}

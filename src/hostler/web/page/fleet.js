// The fleet: counts, what is out of service now with the oldest first, a list to filter, and the map.

import { ageText, badge, command, empty, fill, h, now, put, setAge, show } from "./dom.js";
import { List } from "./list.js";
import { GROUPS, TileMap } from "./map.js";
import { STATES, stateOf } from "./states.js";

const NAMES = new Intl.Collator("en", { numeric: true });
const SORTS = {
  since: (a, b) => (a.host.since ?? Infinity) - (b.host.since ?? Infinity) || byName(a, b),
  name: (a, b) => byName(a, b),
  state: (a, b) => stateOf(a.host.state).order - stateOf(b.host.state).order || SORTS.since(a, b),
  where: (a, b) => NAMES.compare(whereOf(a.host), whereOf(b.host)) || byName(a, b),
};

function byName(a, b) {
  return NAMES.compare(a.host.name, b.host.name) || (a.host.id < b.host.id ? -1 : 1);
}

export function whereOf(host) {
  return placeOf(host).reverse().join(" / ");
}

/** The nearest first. */
function placeOf({ where = {} }) {
  const parts = where.vcenter
    ? [where.esxi, where.computeCluster, where.vcenter]
    : [where.rack || where.failureDomain, where.infraEnv, where.namespace];
  return parts.filter(Boolean);
}

/** Everything that is given must fit; of several states, one. Words are looked for in all that a row shows. */
function filterOf(params) {
  const states = new Set((params.get("state") ?? "").split(",").filter(Boolean));
  const out = !states.size && (params.get("show") ?? "out") === "out";
  const words = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const [kind, cluster, late] = [params.get("kind"), params.get("cluster"), params.get("overdue") === "yes"];
  const admits = (row) => {
    const { host } = row;
    if (states.size && !states.has(host.state)) return false;
    if (kind && host.kind !== kind) return false;
    if (cluster && (host.cluster ?? "") !== cluster) return false;
    if (late && !row.overdue) return false;
    if (!words.length) return true;
    const text = [
      host.name, host.id, host.kind, host.state, host.why, host.next, host.cluster, host.node, whereOf(host),
      ...(host.holders ?? []).map(holderText),
    ].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  return { states, out, admits, narrowed: Boolean(states.size || kind || cluster || late || words.length) };
}

export class Fleet {
  title = "Fleet";

  constructor({ picture, go }) {
    this.picture = picture;
    this.go = go;
    this.map = new TileMap();
    this.list = new List({
      label: "Hosts", key: (row) => row.host.id, make: makeRow, show: showRow,
      columns: [
        this.#heading("state", "State"), this.#heading("name", "Host"), this.#heading("since", "Since"),
        h("span", { role: "columnheader" }, "Why, and what comes next"),
      ],
    });
    this.counts = h("ul", { class: "counts", "aria-label": "Hosts by state" });
    this.scopes = ["out", "all"].map((scope) => h("button", {
      type: "button", class: "scope", onclick: () => this.#change({ show: scope === "out" ? "" : scope, state: "" }),
    }, scope === "out" ? "Out of service" : "All"));
    this.search = h("input", {
      type: "search", id: "search", placeholder: "Filter by any word", "aria-label": "Filter hosts",
      "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false",
      oninput: () => this.#change({ q: this.search.value }),
    });
    this.kind = select("Kind", [["", "Any kind"]], (value) => this.#change({ kind: value }));
    this.cluster = select("Cluster", [["", "Any cluster"]], (value) => this.#change({ cluster: value }));
    this.late = h("button", {
      type: "button", class: "toggle", onclick: () => this.#change({ overdue: this.late.getAttribute("aria-pressed") === "true" ? "" : "yes" }),
    }, "Overdue");
    this.group = select("Group the map by", GROUPS.map(([key, name]) => [key, name]), (value) =>
      this.#change({ group: value === GROUPS[0][0] ? "" : value }));
    this.nothing = h("div", {});
    this.element = h("div", { class: "fleet" },
      h("h1", { class: "hidden", tabindex: "-1" }, "Fleet"),
      this.counts,
      h("section", { class: "board", "aria-label": "Hosts" },
        h("div", { class: "bar" }, h("div", { class: "scopes", role: "group", "aria-label": "Which hosts" }, this.scopes),
          h("div", { class: "filters" }, this.search, this.kind, this.cluster, this.late)),
        h("div", { class: "scroll" }, this.list.element, this.nothing)),
      h("section", { class: "side", "aria-label": "Map" },
        h("div", { class: "bar" }, h("h2", {}, "Map"), this.group),
        h("div", { class: "scroll" }, this.map.element)));
  }

  #heading(sort, text) {
    const button = h("button", { type: "button", onclick: () => this.#change({ sort }) }, text);
    const made = h("span", { role: "columnheader", class: `by-${sort}` }, button);
    (this.headings ??= new Map()).set(sort, made);
    return made;
  }

  #change(some) {
    const params = new URLSearchParams(this.params);
    for (const [key, value] of Object.entries(some)) {
      if (value) params.set(key, value);
      else params.delete(key);
    }
    this.go("fleet", params);
  }

  show(params) {
    this.params = params;
    if (document.activeElement !== this.search) this.search.value = params.get("q") ?? "";
    this.group.field.value = params.get("group") ?? GROUPS[0][0];
    this.update();
  }

  update() {
    const rows = this.picture.rows, filter = filterOf(this.params);
    if (!this.picture.version) return;
    const all = [...rows.values()], found = all.filter(filter.admits);
    const out = found.filter((row) => stateOf(row.host.state).out);
    this.#showCounts(all, filter);
    [["Out of service", out.length, filter.out], ["All", found.length, !filter.out && !filter.states.size]].forEach(([text, number, on], place) => {
      fill(this.scopes[place], text, " ", h("b", {}, number));
      this.scopes[place].setAttribute("aria-pressed", on);
    });
    this.#offer(this.kind, "kind", "Any kind", all.map((row) => row.host.kind));
    this.cluster.hidden = this.#offer(this.cluster, "cluster", "Any cluster", all.map((row) => row.host.cluster)) < 2;
    const late = all.filter((row) => row.overdue).length;
    fill(this.late, "Overdue ", h("b", {}, late));
    this.late.setAttribute("aria-pressed", this.params.get("overdue") === "yes");
    const sort = this.params.get("sort") in SORTS ? this.params.get("sort") : filter.out ? "since" : "name";
    for (const [name, heading] of this.headings) {
      if (name === sort) heading.setAttribute("aria-sort", "ascending");
      else heading.removeAttribute("aria-sort");
    }
    const shown = (filter.out ? out : found).sort(SORTS[sort]);
    this.element.classList.toggle("everything", !filter.out);
    this.list.element.hidden = !shown.length;
    fill(this.nothing, shown.length ? null : this.#why(all, filter));
    this.list.set(shown);
    this.map.set(rows, this.params.get("group") ?? "cluster", filter.admits);
  }

  #showCounts(all, filter) {
    const counted = new Map();
    for (const { host, overdue } of all) {
      const at = counted.get(host.state) ?? { number: 0, late: 0 };
      at.number += 1;
      at.late += overdue ? 1 : 0;
      counted.set(host.state, at);
    }
    const states = [...counted.keys()].map(stateOf).sort((a, b) => a.order - b.order);
    const text = JSON.stringify([states.map((state) => [state.name, counted.get(state.name)]), [...filter.states]]);
    if (text === this.counted) return;
    this.counted = text;
    const focused = document.activeElement?.dataset?.state;
    fill(this.counts, h("li", { class: "total" }, h("b", {}, all.length), all.length === 1 ? " host" : " hosts"), states.map((state) => {
      const { number, late } = counted.get(state.name), on = filter.states.has(state.name);
      const next = new Set(filter.states);
      if (on) next.delete(state.name);
      else next.add(state.name);
      return h("li", {}, h("button", {
        type: "button", class: "count", "aria-pressed": on, "data-state": state.name,
        onclick: () => this.#change({ state: [...next].join(",") }),
      }, badge(state), h("b", {}, number), ` ${state.name}`, late ? h("span", { class: "overdue" }, `${late} overdue`) : null));
    }));
    if (focused) this.counts.querySelector(`[data-state="${CSS.escape(focused)}"]`)?.focus();
  }

  /** The values there are, and the one that is asked for; returns how many. */
  #offer(select, param, any, values) {
    const names = [...new Set(values.filter(Boolean))].sort(NAMES.compare), wanted = this.params.get(param) ?? "";
    if (wanted && !names.includes(wanted)) names.push(wanted);
    const text = names.join("\n");
    if (text !== select.offered) {
      select.offered = text;
      fill(select.field, [["", any], ...names.map((name) => [name, name])].map(([value, label]) => h("option", { value }, label)));
    }
    select.field.value = wanted;
    return names.length;
  }

  #why(all, filter) {
    if (!all.length) {
      return empty("No host is known yet.",
        h("p", {}, "Nodes are shown as soon as the operator reads them. VMs and ESXi hosts need the capability maintenance and a vCenter, bare metal hosts need metal, Agents need reclaim."),
        command("hostler", "status"));
    }
    if (filter.narrowed) {
      return empty("No host fits this filter.",
        h("p", {}, h("button", { type: "button", class: "plain", onclick: () => this.go("fleet", new URLSearchParams({ show: "all" })) }, "Show all hosts")));
    }
    return empty("Every host is in service.",
      h("p", {}, `${all.length} ${all.length === 1 ? "host serves" : "hosts serve"}, or could. What leaves service is shown here, with the reason and what comes next. To take a node out and see it:`),
      command("hostler", "hold", "NODE", "--why", "a fan is replaced"));
  }

  close() {
    this.list.close();
  }
}

function select(label, options, changed) {
  const field = h("select", { "aria-label": label, onchange: () => changed(field.value) }, options.map(([value, text]) => h("option", { value }, text)));
  const made = h("span", { class: "select" }, field);
  made.field = field;
  return made;
}

function holderText({ name, why }) {
  return why ? `${name}: ${why}` : name;
}

function makeRow() {
  const parts = {
    mark: h("span", { class: "badge", "aria-hidden": "true" }), word: h("span", { class: "word" }), late: h("span", { class: "second" }),
    name: h("a", { class: "name" }), place: h("span", { class: "second" }),
    since: h("time", { class: "age" }), why: h("span", { class: "first" }), next: h("span", { class: "second" }),
  };
  const row = h("div", { class: "row", role: "row" },
    h("span", { role: "cell", class: "state" }, parts.mark, h("span", { class: "lines" }, parts.word, parts.late)),
    h("span", { role: "cell", class: "host lines" }, parts.name, parts.place),
    h("span", { role: "cell", class: "since" }, parts.since),
    h("span", { role: "cell", class: "why lines" }, parts.why, parts.next));
  row.parts = parts;
  row.focusable = parts.name;
  return row;
}

function showRow(row, item) {
  if (row.item !== item) {
    row.item = item;
    const { host, overdue } = item, parts = row.parts, state = stateOf(host.state);
    row.classList.toggle("late", Boolean(overdue));
    parts.mark.className = `badge c-${state.colour}`;
    put(parts.mark, state.letter);
    put(parts.word, state.name);
    put(parts.name, host.name);
    parts.name.href = `#/host/${encodeURIComponent(host.id)}`;
    put(parts.place, [host.kind, ...placeOf(host).filter((place) => place !== host.name)].join(" · "));
    const holders = (host.holders ?? []).map(holderText).filter((holder) => !host.why?.includes(holder));
    const next = host.next ? `Next: ${host.next}` : host.waiting ? `Waiting for: ${host.waiting}` : "";
    put(parts.why, host.why || "");
    put(parts.next, [next, holders.length ? `Held by ${holders.join("; ")}` : ""].filter(Boolean).join(" · "));
    row.lastChild.title = show([host.why, next].filter(Boolean).join("\u2002"));
    if (host.since === undefined || host.since === null) {
      delete parts.since.dataset.at;
      parts.since.removeAttribute("datetime");
      parts.since.title = "";
      put(parts.since, "");
    } else setAge(parts.since, host.since);
  }
  const { overdue } = item;
  row.parts.late.className = overdue ? "second overdue" : "second";
  put(row.parts.late, overdue ? `overdue ${ageText(now() - item.host.since - overdue.limit)}` : item.host.waiting ? "waiting" : "");
  row.parts.late.title = overdue ? show(`Longer than ${overdue.why}.`) : "";
}


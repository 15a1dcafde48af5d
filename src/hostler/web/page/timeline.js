// States over time, as bars: one lane for each layer of a host (its VM, its Node), and the entries behind them.

import { age, ageText, badge, clockText, exactText, h, hostLink, now, show } from "./dom.js";
import { stateOf } from "./states.js";

/** Entries of one layer, oldest first, as stretches of one state from `since` until now. */
function stretches(entries, since) {
  const found = [];
  for (const entry of entries) {
    if (!entry.to) continue;
    const last = found.at(-1);
    if (last) last.end = entry.at;
    else if (entry.from) found.push({ state: entry.from, start: since, end: entry.at, why: "" });
    found.push({ state: entry.to, start: Math.max(entry.at, since), end: null, why: entry.sentence ?? "" });
  }
  if (found.length) found.at(-1).end = now();
  return found.filter((one) => one.end > since);
}

export function byKey(entries) {
  const found = new Map();
  for (const entry of [...entries].reverse()) {
    if (!entry.key) continue;
    if (!found.has(entry.key)) found.set(entry.key, []);
    found.get(entry.key).push(entry);
  }
  return found;
}

/** One lane. `moment`: where the line stands, if one is looked at. */
export function lane(entries, since, moment) {
  const span = now() - since;
  const place = (at) => `${(100 * Math.max(0, Math.min(span, at - since))) / span}%`;
  const bars = stretches(entries, since).map(({ state, start, end, why }) => {
    const found = stateOf(state);
    const bar = h("span", {
      class: `stretch c-${found.colour}`,
      title: show(`${state} ${clockText(start)} to ${clockText(end)} (${ageText(end - start)})${why ? `\u2002${why}` : ""}`),
    }, found.letter);
    bar.style.left = place(start);
    bar.style.width = `calc(${(100 * (end - start)) / span}% - 1px)`;
    return bar;
  });
  const line = moment ? h("span", { class: "moment" }) : null;
  if (line) line.style.left = place(moment);
  const layer = entries[0].key.slice(0, entries[0].key.indexOf(":"));
  const words = stretches(entries, since).map(({ state, start }) => `${state} from ${clockText(start)}`).join(", ");
  return h("div", { class: "lane", role: "img", "aria-label": `${layer}: ${words || "no change"}`, title: layer }, bars, line);
}

/** The hours under the lanes. */
export function axis(since) {
  const span = now() - since;
  const steps = [300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  const step = steps.find((one) => span / one <= 8) ?? steps.at(-1);
  const offset = new Date().getTimezoneOffset() * 60;
  const marks = [];
  for (let at = Math.ceil((since - offset) / step) * step + offset; at < now(); at += step) {
    if (at - since < span * 0.02 || now() - at < span * 0.09) continue;
    const mark = h("span", { class: "mark" }, step >= 86400 ? exactText(at).slice(5, 10) : clockText(at, { seconds: false }));
    mark.style.left = `${(100 * (at - since)) / span}%`;
    marks.push(mark);
  }
  return h("div", { class: "axis", "aria-hidden": "true" }, marks, h("span", { class: "mark now" }, "now"));
}

const FINE = ["ok", "started", "already"]; // results of actions

/** What was done, as `hostler history` prints it. */
function deed(entry) {
  if (entry.what === "refusal") return [h("b", {}, "refused"), h("span", { class: "second" }, entry.reason ?? "")];
  if (entry.what !== "action") return h("b", {}, entry.what);
  const fine = FINE.includes(entry.result);
  return [h("b", {}, entry.reason || "did"), entry.result && entry.result !== "ok" ? h("span", { class: fine ? "second" : "second failed" }, entry.result) : null];
}

/** Under what a layer or a machine is named, as far as its key tells. */
export function nameOf(key) {
  return key.slice(key.lastIndexOf("/") + 1) || key;
}

/** One entry in words. `hosts`: names by key, or null where the host is known. `link`: makes the link to its moment. */
export function entryRow(entry, { hosts = null, idOf = () => null, link = null, chosen = false } = {}) {
  const change = entry.to
    ? [entry.from ? [badge(stateOf(entry.from)), h("span", {}, entry.from), h("span", {}, "→")] : null, badge(stateOf(entry.to)), h("b", {}, entry.to)]
    : deed(entry);
  const id = idOf(entry.key), name = hosts ? hosts[entry.key] ?? nameOf(entry.key) : "";
  return h("li", { class: `entry${chosen ? " chosen" : ""}`, "data-at": entry.at },
    h("span", { class: "when" }, link ? h("a", { href: link, title: exactText(entry.at) }, clockText(entry.at)) : h("span", { title: exactText(entry.at) }, clockText(entry.at)),
      h("span", { class: "second" }, age(entry.at, "", " ago"))),
    hosts ? h("span", { class: "who" }, id ? hostLink(id, name) : h("span", { class: "name", title: entry.key }, name || "history")) : null,
    h("span", { class: "what" }, h("span", { class: "change" }, change,
      entry.duration !== undefined && entry.duration !== null ? h("span", { class: "second" }, `after ${ageText(entry.duration)}`) : null,
      entry.what === "inferred" ? h("span", { class: "tag", title: "Nobody saw it: the state differed after a start of the operator." }, "inferred") : null),
      entry.sentence ? h("span", { class: "sentence" }, entry.sentence) : null));
}

// What happened: the last night on one screen, as bars over time and as entries. The URL holds filter and moment.

import { age, clockText, command, empty, exactText, fill, h, hostLink, now } from "./dom.js";
import { ask } from "./picture.js";
import { stateOf } from "./states.js";
import { axis, byKey, entryRow, lane, nameOf } from "./timeline.js";

const RANGES = { "1h": 3600, "12h": 43200, "24h": 86400, "7d": 604800, "30d": 2592000 };
const USUAL = "12h";
const CAPABILITIES = ["holds", "maintenance", "metal", "reclaim", "platform", "ingress", "join"];
const MOST = 2000; // entries asked for
const SHOWN = 300; // of them in words
const TRACKS = 60; // hosts with bars
const AGAIN = 10_000;

export class History {
  title = "History";

  constructor({ picture, go }) {
    this.picture = picture;
    this.go = go;
    this.range = field("Time", h("select", {}, Object.keys(RANGES).map((name) => h("option", { value: name }, `last ${name}`))), (value) => this.#change({ since: value === USUAL ? "" : value, at: "" }));
    this.capability = field("Capability", h("select", {}, h("option", { value: "" }, "Any capability"), CAPABILITIES.map((name) => h("option", { value: name }, name))), (value) => this.#change({ capability: value }));
    this.cluster = field("Cluster", h("select", {}), (value) => this.#change({ cluster: value }));
    this.host = field("Host", h("input", { type: "search", placeholder: "Any host", autocomplete: "off", spellcheck: "false" }), (value) => this.#change({ host: value }));
    this.summary = h("p", { class: "muted", role: "status" });
    this.body = h("div", { class: "past" });
    this.element = h("div", { class: "page" }, h("div", { class: "bar" }, h("h1", { tabindex: "-1" }, "History"),
      h("div", { class: "filters" }, [this.range, this.capability, this.cluster, this.host].map((one) => one.label))), this.summary, this.body);
    this.stopped = new AbortController();
  }

  #change(some) {
    const params = new URLSearchParams(this.params);
    for (const [key, value] of Object.entries(some)) {
      if (value) params.set(key, value);
      else params.delete(key);
    }
    this.go("history", params);
  }

  show(params) {
    this.params = params;
    this.range.input.value = params.get("since") in RANGES ? params.get("since") : USUAL;
    this.capability.input.value = params.get("capability") ?? "";
    if (document.activeElement !== this.host.input) this.host.input.value = params.get("host") ?? "";
    this.loaded = "";
    this.update(null);
  }

  update() {
    if (!this.picture.version) return;
    this.#clusters();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#load(), this.loaded ? 1000 : 0);
  }

  close() {
    clearTimeout(this.timer);
    this.stopped.abort();
  }

  #clusters() {
    const names = [...new Set([...this.picture.rows.values()].map((row) => row.host.cluster).filter(Boolean))].sort();
    const wanted = this.params.get("cluster") ?? "";
    if (wanted && !names.includes(wanted)) names.push(wanted);
    this.cluster.label.hidden = names.length < 2;
    fill(this.cluster.input, h("option", { value: "" }, "Any cluster"), names.map((name) => h("option", { value: name }, name)));
    this.cluster.input.value = wanted;
  }

  async #load() {
    const params = this.params, since = now() - RANGES[this.range.input.value];
    const asked = new URLSearchParams({ since: String(since), most: String(MOST) });
    for (const key of ["capability", "host"]) if (params.get(key)) asked.set(key, params.get(key));
    try {
      const answer = await ask(`v1/history?${asked}`, this.stopped);
      if (params !== this.params) return;
      const cluster = params.get("cluster");
      const entries = answer.entries.filter((entry) => !cluster || this.#clusterOf(entry.key) === cluster);
      const text = JSON.stringify([entries.map((entry) => entry.id), answer.complete, params.toString()]);
      if (text !== this.loaded || now() - this.drawn > 60) this.#draw(entries, answer, since);
      this.loaded = text;
    } catch (error) {
      if (this.stopped.signal.aborted || params !== this.params) return;
      if (error.status === 404) fill(this.body, empty("No host of that name has a history.", h("p", {}, error.message)));
      else if (!this.loaded) fill(this.body, empty("The history cannot be read.", h("p", {}, error.message)));
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#load(), AGAIN);
  }

  /** Of a layer that is gone, what its key says. */
  #clusterOf(key) {
    const host = this.picture.hostOf(key)?.host;
    return host ? host.cluster ?? "" : key.startsWith("node:") ? key.slice(5, key.indexOf("/")) : "";
  }

  #draw(entries, answer, since) {
    this.drawn = now();
    const at = Number(this.params.get("at")) || null;
    const notes = (answer.notes ?? []).filter((note) => !this.picture.notes.includes(note));
    const tracks = new Map();
    for (const [key, found] of byKey(entries)) {
      const host = this.picture.hostOf(key)?.host, id = host?.id ?? key;
      if (!tracks.has(id)) tracks.set(id, { name: host?.name ?? answer.names[key] ?? nameOf(key), key, linked: Boolean(host), lanes: [] });
      tracks.get(id).lanes.push([key, found]);
    }
    const eventful = [...tracks].filter(([, track]) => track.lanes.some(([, found]) => found.some(isEvent)));
    const last = ([, track]) => Math.max(...track.lanes.map(([, found]) => found.at(-1).at));
    const shown = eventful.sort((a, b) => last(b) - last(a)).slice(0, TRACKS), calm = tracks.size - eventful.length;
    const runs = runsOf(entries, at);
    fill(this.summary, entries.length
      ? `${entries.length}${answer.complete ? "" : " or more"} ${entries.length === 1 ? "entry" : "entries"} about ${tracks.size} ${tracks.size === 1 ? "host" : "hosts"} since ${exactText(since).slice(0, 16)}.${eventful.length > TRACKS ? ` The ${TRACKS} that changed last have bars.` : ""}${calm && !this.params.get("host") ? ` ${calm} of them only began to be recorded, or stayed in service.` : ""}`
      : "", notes.map((note) => h("span", { class: "note" }, " ", note)));
    if (!entries.length) {
      fill(this.body, empty("Nothing happened, as far as the history goes.", h("p", {}, "Every change of a host's state is recorded here, over restarts of the operator. The same in a terminal:"), command("hostler", "history", "--since", "7d")));
      return;
    }
    fill(this.body,
      shown.length ? h("section", { class: "lanes", "aria-label": "States over time" }, shown.map(([id, track]) => h("div", { class: "track" },
        track.linked ? hostLink(id, track.name) : h("span", { class: "name", title: track.key }, track.name),
        h("div", {}, track.lanes.map(([, found]) => lane(found, since, at))))), h("div", { class: "track" }, h("span", {}), axis(since))) : null,
      h("section", { "aria-label": "Entries" }, h("ol", { class: "entries" }, runs.slice(0, SHOWN).map((run) => run.length > 1 ? firstSeen(run) : entryRow(run[0], {
        hosts: answer.names, idOf: (key) => this.picture.hostOf(key)?.host.id ?? null, chosen: at !== null && Math.abs(run[0].at - at) < 0.0005, link: this.#linkTo(run[0].at),
      }))), runs.length > SHOWN ? h("p", { class: "muted" }, `The newest ${SHOWN} are shown in words.`) : null));
    if (at !== null && this.scrolled !== at) {
      this.scrolled = at;
      const nearest = [...this.body.querySelectorAll(".entry")].sort((a, b) => Math.abs(a.dataset.at - at) - Math.abs(b.dataset.at - at))[0];
      nearest?.scrollIntoView({ block: "center" });
      fill(this.summary, `At ${exactText(at)}. `, h("a", { href: this.#linkTo(null) }, "Show all"));
    }
  }

  #linkTo(at) {
    const params = new URLSearchParams(this.params);
    if (at === null) params.delete("at");
    else params.set("at", String(at));
    return `#/history${params.size ? `?${params}` : ""}`;
  }
}

/** Something was done, or a host was out of service. */
function isEvent(entry) {
  return entry.what === "action" || entry.what === "refusal" || [entry.from, entry.to].some((name) => name && name !== "gone" && stateOf(name).out);
}

function isFirst(entry) {
  return entry.what === "inferred" && !entry.from && !stateOf(entry.to).out;
}

/** Entries one by one; hosts that one after the other began to be recorded in service are one run. */
function runsOf(entries, at) {
  const runs = [];
  for (const entry of entries) {
    const last = runs.at(-1);
    if (last && at === null && isFirst(entry) && isFirst(last[0])) last.push(entry);
    else runs.push([entry]);
  }
  return runs;
}

function firstSeen(run) {
  return h("li", { class: "entry", "data-at": run[0].at },
    h("span", { class: "when" }, h("span", { title: exactText(run[0].at) }, clockText(run[0].at)), h("span", { class: "second" }, age(run[0].at, "", " ago"))),
    h("span", { class: "who" }, `${run.length} hosts`),
    h("span", { class: "what" }, h("span", { class: "sentence" }, "Their recording began; they were in service or free.")));
}

function field(name, input, changed) {
  input.setAttribute("aria-label", name);
  input.addEventListener("change", () => changed(input.value));
  return { input, label: h("label", { class: "select" }, input) };
}


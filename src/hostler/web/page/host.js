// One host: the sentence first, then whether it may be stopped, facts, holders, why, what would happen, what happened.

import { age, badge, command, exactText, fill, h, now, put } from "./dom.js";
import { ask } from "./picture.js";
import { stateOf } from "./states.js";
import { axis, byKey, entryRow, lane } from "./timeline.js";
import { whereOf } from "./fleet.js";

const AGAIN = 15_000; // facts grow old without a change
const DAY = 86400;
const SPANS = [[900, "Last 15 minutes"], [3600, "Last hour"], [6 * 3600, "Last 6 hours"], [DAY, "Last day"]];
// What `explain` and `plan` are asked about, by the beginning of a layer's key.
const EXPLAINED = { esxi: "esxi", bmh: "baremetalhost", agent: "agent", node: "node" };

function thingsOf(host) {
  return (host.layers ?? []).flatMap((key) => {
    const [layer, rest] = [key.slice(0, key.indexOf(":")), key.slice(key.indexOf(":") + 1)];
    if (!(layer in EXPLAINED)) return [];
    const name = layer === "node" ? rest.slice(rest.indexOf("/") + 1) : layer === "esxi" ? host.name : rest;
    return [{ kind: EXPLAINED[layer], name }];
  });
}

export class Host {
  constructor({ picture }, id) {
    this.picture = picture;
    this.id = id;
    this.open = new Map(); // which parts of the trees a reader has opened or closed
    this.parts = Object.fromEntries(["head", "stop", "facts", "holders", "why", "plan", "past", "commands"].map((name) => [name, h("div", {})]));
    this.span = h("h2", {}, "Last day");
    const { head, stop, facts, holders, why, plan, past, commands } = this.parts;
    this.element = h("article", { class: "page one" }, head,
      h("div", { class: "columns" },
        h("div", {}, stop, section("Facts", facts), section("Who holds it", holders), section("Commands", commands)),
        h("div", {}, h("section", { class: "part" }, this.span, past), section("Why", why), section("What would happen", plan))));
    this.stopped = new AbortController();
  }

  get title() {
    return this.picture.rows.get(this.id)?.host.name ?? this.id;
  }

  show() {
    this.update(null);
  }

  update(changed) {
    if (changed !== null && this.begun && !changed.has(this.id)) return;
    const row = this.picture.rows.get(this.id);
    if (row) this.#head(row);
    if (this.picture.version) this.#load();
  }

  close() {
    clearTimeout(this.timer);
    this.stopped.abort();
  }

  async #load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = this.begun = true;
    clearTimeout(this.timer);
    try {
      const answer = await ask(`v1/hosts/${encodeURIComponent(this.id)}`, this.stopped);
      this.#head(answer.row);
      this.#stop(answer.row.safeToStop);
      this.#facts(answer);
      this.#holders(answer.row.host);
      this.#commands(answer.row.host);
      await Promise.all([this.#trees(answer.row.host), this.#past(answer.row.host)]);
    } catch (error) {
      if (this.stopped.signal.aborted) return;
      if (error.status === 404) this.#gone(error.message);
    } finally {
      this.loading = false;
    }
    this.timer = setTimeout(() => this.#load(), this.again ? 200 : AGAIN);
    this.again = false;
  }

  #gone(message) {
    fill(this.parts.head, crumbs(this.title), h("h1", { tabindex: "-1" }, this.title), h("p", { class: "sentence-large" }, message));
    this.#past({ layers: [this.id] });
  }

  #head({ host, overdue }) {
    const text = JSON.stringify([{ ...host, labels: null }, overdue?.limit]); // lists come without labels
    if (text === this.headed) return;
    this.headed = text;
    const state = stateOf(host.state), focused = this.parts.head.contains(document.activeElement);
    fill(this.parts.head, crumbs(host.name),
      h("p", { class: "standing" }, h("span", { class: "name" }, host.name), badge(state), h("b", {}, state.name),
        age(host.since, "for "), overdue ? h("span", { class: "overdue", title: `Longer than ${overdue.why}.` }, age(host.since + overdue.limit, "overdue by ")) : null,
        host.waiting ? h("span", { class: "tag" }, "waiting on purpose") : null),
      h("h1", { class: "sentence-large", tabindex: "-1" }, host.why || `It is ${host.state}.`),
      host.next ? h("p", { class: "next" }, h("span", { class: "muted" }, "Next: "), host.next) : null,
      host.waiting ? h("p", { class: "next" }, h("span", { class: "muted" }, "Waiting for: "), host.waiting) : null,
      (host.problems ?? []).map((problem) => h("p", { class: "problem" }, problem)),
      (host.notes ?? []).map((note) => h("p", { class: "muted" }, note)));
    if (focused) this.parts.head.querySelector("h1").focus({ preventScroll: true });
  }

  #stop(safe) {
    if (!safe) return fill(this.parts.stop);
    const word = { Yes: "Safe to stop", No: "Not safe to stop", Unknown: "Not known whether it is safe to stop" }[safe.answer];
    return fill(this.parts.stop, h("section", { class: `stop stop-${safe.answer.toLowerCase()}`, "aria-label": "Safe to stop" },
      h("h2", {}, h("span", { class: "sign", "aria-hidden": "true" }, { Yes: "✓", No: "✕", Unknown: "?" }[safe.answer]), word),
      (safe.reasons ?? []).length > 1 ? h("ul", {}, safe.reasons.map((reason) => h("li", {}, reason.why, "."))) : h("p", {}, safe.why),
      h("p", { class: "muted" }, "As of ", age(safe.at, "", " ago"), ".")));
  }

  #facts({ row: { host }, layers, at }) {
    const known = new Map((layers ?? []).map((layer) => [layer.key, layer]));
    const rows = [
      ["Kind", host.kind], ["Where", whereOf(host)], ["Cluster", host.cluster], ["Node", host.node],
      ["Decided by", host.capability], ["Operation", host.operation],
      ["Runs on", host.under ? this.#under(host.under) : ""],
    ];
    const lines = (host.layers ?? []).map((key) => h("li", {}, h("span", { class: "name" }, key),
      (known.get(key)?.lines ?? []).map((line) => h("span", { class: "second" }, `${line.state} `, age(line.since, "for "), line.capability ? ` by ${line.capability}` : ""))));
    const labels = Object.entries(host.labels ?? {}).sort();
    fill(this.parts.facts,
      h("dl", {}, rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
        h("dt", {}, "Known as"), h("dd", {}, h("ul", { class: "list" }, lines))),
      labels.length ? this.#fold("labels", h("span", {}, `${labels.length} labels`), h("ul", { class: "list" }, labels.map(([key, value]) => h("li", { class: "name" }, `${key}=${value}`)))) : null,
      h("p", { class: "muted" }, "Read ", age(at, "", " ago"), "."));
  }

  #under(key) {
    const host = this.picture.hostOf(key)?.host;
    return host ? h("a", { class: "name", href: `#/host/${encodeURIComponent(host.id)}` }, host.name) : h("span", { class: "name" }, key);
  }

  #holders(host) {
    const holders = host.holders ?? [];
    fill(this.parts.holders, holders.length
      ? h("ul", { class: "list holders" }, holders.map((holder) => h("li", {}, h("b", {}, holder.name), " ", age(holder.since, "for "), h("span", { class: "second" }, holder.why || "It gave no reason."))))
      : h("p", { class: "muted" }, "Nobody."));
  }

  #commands(host) {
    const node = (host.layers ?? []).some((key) => key.startsWith("node:")) ? host.node : "";
    const held = (host.holders ?? []).some((holder) => holder.name !== "maintenance"); // that one ends by itself
    const made = [
      node && !held ? command("hostler", "hold", node, "--why", "...") : null,
      node && held ? command("hostler", "release", node) : null,
      node ? command("hostler", "drain", node) : null,
      host.kind === "esxi" ? command("hostler", "maintenance", "plan", host.name) : null,
      command("hostler", "history", host.name, "--since", "30d"),
    ];
    const text = made.filter(Boolean).map((one) => one.textContent).join("\n");
    if (text === this.commanded) return;
    this.commanded = text;
    fill(this.parts.commands, h("p", { class: "muted" }, "This page changes nothing. To act:"), made);
  }

  async #trees(host) {
    const things = thingsOf(host);
    const found = await Promise.all(["explain", "plan"].map((verb) => Promise.all(things.map(({ kind, name }) =>
      ask(`v1/${verb}/${kind}/${name.split("/").map(encodeURIComponent).join("/")}`, this.stopped).catch((error) => {
        if (error.status !== 404) throw error; // the capability is off, or plans nothing of this kind
        return null;
      })))));
    found.forEach((answers, place) => {
      const verb = ["explain", "plan"][place];
      const all = answers.filter(Boolean).flatMap((answer) => answer.explanations ?? []);
      fill(this.parts[verb === "plan" ? "plan" : "why"], all.length
        ? all.map((one) => this.#tree(verb, one))
        : h("p", { class: "muted" }, verb === "plan" ? "No capability that is on would do anything with it." : "No capability that is on decides about it."));
    });
  }

  #tree(verb, one) {
    const actions = one.actions ?? [], rules = one.rules ?? [];
    const inside = [
      (one.facts ?? []).length ? h("ul", { class: "facts" }, one.facts.map((fact) => factLine(fact))) : null,
      rules.length ? h("ul", { class: "rules" }, rules.map((rule) => h("li", { class: rule.decided ? "decided" : "" },
        h("span", { class: "mark", "aria-hidden": "true" }, rule.decided ? "⇒" : ""), h("b", {}, rule.name), ` ${rule.outcome}. `, rule.why,
        rule.decided ? h("span", { class: "hidden" }, " This rule decided.") : null,
        (rule.facts ?? []).length ? h("ul", { class: "facts" }, rule.facts.map((fact) => factLine(fact))) : null))) : null,
      actions.length ? h("ol", { class: "actions" }, actions.map((action) => h("li", {}, h("b", {}, `${action.verb} ${action.target}`), action.why ? `: ${action.why}` : "",
        action.heldBack ? h("span", { class: "second" }, `Held back: ${action.heldBack}`) : null))) : null,
    ].filter(Boolean);
    const line = h("span", {}, h("b", { class: "capability" }, one.capability), " ", one.outcome);
    return inside.length ? this.#fold(`${verb}/${one.capability}`, line, inside, verb === "plan" && actions.length > 0) : h("p", { class: "fold" }, line);
  }

  #fold(key, line, inside, open = false) {
    return h("details", {
      class: "fold", open: this.open.get(key) ?? open, ontoggle: (event) => this.open.set(key, event.target.open),
    }, h("summary", {}, line), inside);
  }

  async #past(host) {
    let since = now() - DAY, answer;
    try {
      const asked = new URLSearchParams({ host: this.id, since: String(since), most: "200" });
      answer = await ask(`v1/history?${asked}`, this.stopped);
    } catch (error) {
      if (this.stopped.signal.aborted) return;
      fill(this.parts.past, h("p", { class: "muted" }, error.status === 404 ? "Nothing is recorded about it." : error.message));
      return;
    }
    const entries = answer.entries, lanes = byKey(entries);
    // As much of the day as something happened in, so that a short story is not a line at the edge.
    const [span, title] = SPANS.find(([seconds]) => entries.length && entries.at(-1).at > now() - seconds) ?? SPANS.at(-1);
    put(this.span, title);
    since = now() - span;
    fill(this.parts.past, entries.length
      ? [h("div", { class: "lanes" }, [...lanes].map(([key, found]) => h("div", { class: "track" }, h("span", { class: "second" }, key.slice(0, key.indexOf(":"))), lane(found, since))),
          h("div", { class: "track" }, h("span", {}), axis(since))),
        h("ol", { class: "entries" }, entries.slice(0, 8).map((entry) => entryRow(entry))),
        entries.length > 8 ? h("p", {}, h("a", { href: `#/history?host=${encodeURIComponent(this.id)}` }, `All ${entries.length} entries of the last day`)) : null]
      : [h("p", { class: "muted" }, `Nothing changed since ${exactText(since).slice(0, 16)}. `,
          h("a", { href: `#/history?host=${encodeURIComponent(this.id)}&since=30d` }, "The last 30 days"))]);
  }
}

function section(title, content) {
  return h("section", { class: "part" }, h("h2", {}, title), content);
}

function crumbs(name) {
  return h("p", { class: "crumbs" }, h("a", { href: "#/fleet" }, "Fleet"), " / ", h("span", { class: "name" }, name));
}

function factLine(fact) {
  const known = fact.known ?? true;
  const value = known ? (typeof fact.value === "string" ? fact.value : JSON.stringify(fact.value ?? null)) : `unknown: ${fact.why ?? ""}`;
  return h("li", { class: known ? "" : "unknown" }, h("span", { class: "muted" }, fact.name), " ", h("span", { class: "value" }, value),
    fact.ageSeconds === undefined || fact.ageSeconds === null ? null : h("span", { class: "muted" }, " ", age(now() - fact.ageSeconds, "", " ago")));
}

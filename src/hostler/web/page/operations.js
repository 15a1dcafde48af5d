// What is under way: maintenances, claims, reclaims, each with its progress and what blocks it.

import { age, badge, command, empty, fill, h, hostLink, put, show } from "./dom.js";
import { ask } from "./picture.js";
import { isState, stateOf } from "./states.js";

const AGAIN = 5_000;

export class Operations {
  title = "Operations";

  constructor({ picture }) {
    this.picture = picture;
    this.body = h("div", { class: "operations" });
    this.summary = h("p", { class: "muted operations-summary", role: "status" });
    this.element = h("div", { class: "page" }, h("h1", { tabindex: "-1" }, "Operations"), this.summary, this.body);
    this.stopped = new AbortController();
  }

  show() {
    this.update(null);
  }

  /** At most every second, whatever the fleet does. */
  update() {
    if (!this.picture.version || this.loading) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#load(), this.loaded ? 1000 : 0);
  }

  close() {
    clearTimeout(this.timer);
    this.stopped.abort();
  }

  async #load() {
    this.loading = true;
    try {
      const answer = await ask("v1/operations", this.stopped);
      const text = JSON.stringify(answer.operations);
      if (text !== this.loaded) {
        put(this.summary, summaryOf(answer.operations));
        fill(this.body, answer.operations.length ? answer.operations.map((one) => this.#operation(one)) : nothing());
      }
      this.loaded = text;
    } catch (error) {
      if (this.stopped.signal.aborted) return;
      if (error.status === 404) fill(this.body, empty("This operator does not serve operations yet.", h("p", {}, "It is older than this page. Maintenances are shown by:"), command("hostler", "maintenance", "status")));
      else if (!this.loaded) fill(this.body, empty("Operations cannot be read.", h("p", {}, error.message)));
    } finally {
      this.loading = false;
    }
    this.timer = setTimeout(() => this.#load(), AGAIN);
  }

  #operation(one) {
    const total = one.total ?? 0, done = one.done ?? 0;
    const bar = total > 0 ? h("progress", { max: total, value: done, "aria-label": `Progress of ${one.name}` }) : null;
    const blocked = one.blockedBy ?? [];
    return h("article", { class: "operation" },
      h("header", {}, h("span", { class: "tag" }, one.kind), h("h2", { class: "name" }, one.name), one.state && isState(one.state) ? badge(stateOf(one.state)) : null, one.state ? h("b", {}, one.state) : null, age(one.since, "for "),
        one.overdue ? h("span", { class: "overdue" }, "overdue") : null,
        one.waiting ? h("span", { class: "tag", title: show(one.waiting) }, "waiting on purpose") : null,
        bar ? h("span", { class: "progress" }, bar, h("span", { class: "second" }, `${done} of ${total}`)) : null),
      h("div", {}, h("p", { class: "sentence" }, one.why),
      one.next ? h("p", { class: "next" }, h("span", { class: "muted" }, "Next: "), one.next) : null,
      blocked.length ? h("p", { class: "problem" }, h("b", {}, "Blocked by")) : null,
      blocked.length ? h("ul", { class: "problem" }, ...blocked.map((sentence) => h("li", {}, sentence))) : null,
      (one.hosts ?? []).length ? h("ul", { class: "members" }, one.hosts.map((id) => this.#member(id))) : null));
  }

  #member(id) {
    const host = (this.picture.rows.get(id) ?? this.picture.hostOf(id))?.host;
    return h("li", {}, host ? [badge(stateOf(host.state)), hostLink(host.id, host.name), h("span", { class: "second" }, host.state)] : h("span", { class: "name" }, id));
  }
}

/** `203 under way: 1 maintenance, 202 claims; 3 blocked, 162 overdue.` */
function summaryOf(operations) {
  if (!operations.length) return "";
  const counted = new Map();
  for (const { kind } of operations) counted.set(kind, (counted.get(kind) ?? 0) + 1);
  const kinds = [...counted].map(([kind, number]) => `${number} ${kind}${number === 1 ? "" : "s"}`).join(", ");
  const troubled = [["blocked", (one) => (one.blockedBy ?? []).length], ["overdue", (one) => one.overdue]]
    .map(([word, holds]) => [operations.filter(holds).length, word]).filter(([number]) => number).map(([number, word]) => `${number} ${word}`);
  return `${operations.length} under way: ${kinds}${troubled.length ? `; ${troubled.join(", ")}` : ""}. The oldest first.`;
}

function nothing() {
  return empty("Nothing is under way.",
    h("p", {}, "A maintenance begins when an administrator lets an ESXi host enter maintenance mode; a claim when Cluster API wants a machine; a reclaim when an Agent is unbound. To see what one would do:"),
    command("hostler", "maintenance", "plan", "ESXI-HOST"));
}

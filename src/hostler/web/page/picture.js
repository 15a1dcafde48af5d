// The picture of all hosts, kept up to date from the operator. It never empties itself: what was known last stays, with
// the time it is from, until something newer comes.

import { setClock } from "./dom.js";

const STALLED = 40_000; // the operator sends something every 15 s
const BUFFERED = 8_000; // without a first event a proxy keeps them back: then ask again and again
const POLLING = 600_000; // until streaming is tried again
const HIDDEN = 30_000; // a page nobody looks at gives its connection back: a browser has six for one server
const FOLLOWERS = 16; // replicas that do not lead, one after the other, before it is said

const HEADERS = { "X-Hostler-Leader": "true", "X-Hostler-Page": "true" };

class Refused extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

/** Ask once; a refusal is an error with the operator's own sentence. */
export async function ask(path, { signal } = {}) {
  for (let tries = 0; ; tries++) {
    const response = await fetch(path, { headers: HEADERS, cache: "no-store", signal });
    if (response.ok) return response.json();
    const refused = await refusalOf(response);
    if (refused.status !== 421 || tries >= FOLLOWERS) throw refused;
    await sleep(200 + Math.random() * 300, signal);
  }
}

async function refusalOf(response) {
  const text = await response.text();
  try {
    const { reason, message } = JSON.parse(text);
    if (typeof message === "string") return new Refused(response.status, reason, message);
  } catch {
    // not the operator's: a proxy on the way
  }
  return new Refused(response.status, "", `The answer was HTTP ${response.status}${text ? `: ${text.slice(0, 200).trim()}` : "."}`);
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

export class Picture extends EventTarget {
  rows = new Map();
  notes = [];
  version = "";
  at = null; // when the operator made the last answer
  heard = null; // when anything came last, by this machine's clock
  live = false;
  problem = null; // why there is nothing new: { status, reason, message }
  layers = new Map(); // the id of a host by the key of each of its layers

  #polling = 0; // until when
  #followers = 0;

  async run() {
    for (let failures = 0; ; ) {
      await this.#shown();
      try {
        await this.#connect();
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#lost(error);
      }
      const wait = this.problem?.status === 421 && this.#followers < FOLLOWERS ? 0.3 : Math.min(0.5 * 2 ** failures, 10);
      await sleep(1000 * wait * (0.5 + Math.random() / 2));
    }
  }

  hostOf(key) {
    return this.rows.get(this.layers.get(key));
  }

  /** Until somebody looks at the page. */
  async #shown() {
    while (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    }
  }

  async #connect() {
    const stop = new AbortController();
    let timer, hidden;
    const patience = (milliseconds, why) => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(why), milliseconds);
    };
    const looked = () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(() => stop.abort(), HIDDEN);
    };
    document.addEventListener("visibilitychange", looked);
    try {
      const polling = Date.now() < this.#polling;
      const asked = new URLSearchParams({ since: this.version });
      if (polling) asked.set("wait", "25");
      patience(polling ? STALLED : BUFFERED, "buffered");
      const response = await fetch(`v1/hosts/stream?${asked}`, {
        headers: HEADERS, cache: "no-store", signal: stop.signal,
      });
      if (!response.ok) throw await refusalOf(response);
      if (polling) return this.#take(await response.json());
      let first = true;
      for await (const data of events(response.body, () => {
        this.heard = Date.now();
        patience(first ? BUFFERED : STALLED, first ? "buffered" : "silent");
      })) {
        first = false;
        this.#take(JSON.parse(data));
      }
    } catch (error) {
      if (stop.signal.reason === "buffered" && this.problem === null) this.#polling = Date.now() + POLLING;
      throw stop.signal.aborted ? new Error("The operator went silent.") : error;
    } finally {
      clearTimeout(timer);
      clearTimeout(hidden);
      document.removeEventListener("visibilitychange", looked);
      stop.abort();
    }
  }

  #take(news) {
    const changed = new Set();
    if (news.complete) {
      for (const id of this.rows.keys()) changed.add(id);
      this.rows.clear();
      this.layers.clear();
    }
    for (const id of news.gone ?? []) {
      changed.add(id);
      this.rows.delete(id);
    }
    for (const row of news.hosts) {
      changed.add(row.host.id);
      this.rows.set(row.host.id, row);
      for (const key of row.host.layers ?? []) this.layers.set(key, row.host.id);
    }
    this.version = news.version;
    this.notes = news.notes ?? [];
    this.at = news.at;
    this.heard = Date.now();
    this.problem = null;
    this.live = true;
    this.#followers = 0;
    setClock(news.at);
    this.dispatchEvent(new CustomEvent("change", { detail: { ids: changed } }));
    this.dispatchEvent(new Event("link"));
  }

  #lost(error) {
    this.live = false;
    const status = error.status ?? 0;
    if (status === 421) this.#followers += 1;
    this.problem = { status, reason: error.reason ?? "", message: status ? error.message : "The operator cannot be reached." };
    this.dispatchEvent(new Event("link"));
  }
}

/** The data of server-sent events; `heard` is called for whatever comes, comments too. */
async function* events(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", from = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    for (let end; (end = rest.indexOf("\n\n", from)) >= 0; from = 0) {
      const lines = rest.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
      rest = rest.slice(end + 2);
      if (lines.length) yield lines.map((line) => line.slice(6)).join("\n");
    }
    from = Math.max(0, rest.length - 1);
  }
}

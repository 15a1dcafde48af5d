// Elements from data. Whatever comes from objects becomes text, never HTML, and what a screen would obey or hide is shown.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Text with its control characters visible: an object must not hide or turn round what stands beside it. */
export function show(value) {
  return String(value).replace(HIDDEN, (one) => {
    const code = one.codePointAt(0);
    if (one === "\n") return "\\n";
    if (one === "\t") return "\\t";
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** An element. Children: elements, or values that become text; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : show(value));
  }
  made.append(...nodes(children));
  return made;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((one) => one !== null && one !== undefined && one !== false && one !== "")
    .map((one) => (one instanceof Node ? one : document.createTextNode(show(one))));
}

export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Set text only where it differs: a screen reader and a selection are left in peace. */
export function put(element, text) {
  const shown = show(text);
  if (element.textContent !== shown) element.textContent = shown;
}

// -- time. Ages count by the operator's clock: `skew` is what it is ahead of this machine's, in seconds.

let skew = 0;

export function setClock(at) {
  skew = at - Date.now() / 1000;
}

export function now() {
  return Date.now() / 1000 + skew;
}

/** As `hostler hosts` prints ages: two units at most. */
export function ageText(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const days = Math.floor(all / 86400), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60);
  if (minutes < 2) return `${all}s`;
  if (minutes < 10 && all % 60) return `${minutes}m${all % 60}s`;
  if (hours < 3) return `${minutes}m`;
  if (hours < 8 && minutes % 60) return `${hours}h${minutes % 60}m`;
  if (days < 2) return `${hours}h`;
  if (days < 8 && hours % 24) return `${days}d${hours % 24}h`;
  return `${days}d`;
}

const two = (number) => String(number).padStart(2, "0");

export function clockText(at, { seconds = true } = {}) {
  const date = new Date((at - skew) * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

export function exactText(at) {
  const date = new Date((at - skew) * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clockText(at)}`;
}

/** An age that ticks; the exact time on hover. */
export function age(at, before = "", after = "") {
  if (at === null || at === undefined) return null;
  const made = h("time", { class: "age", "data-before": before, "data-after": after });
  setAge(made, at);
  return made;
}

export function setAge(element, at) {
  if (element.dataset.at !== String(at)) {
    element.dataset.at = at;
    element.dateTime = new Date(at * 1000).toISOString();
    element.title = exactText(at);
  }
  put(element, `${element.dataset.before ?? ""}${ageText(now() - at)}${element.dataset.after ?? ""}`);
}

export function tick() {
  for (const element of document.querySelectorAll("time[data-at]")) setAge(element, Number(element.dataset.at));
}

// -- small parts that several views have

export function badge(state) {
  return h("span", { class: `badge c-${state.colour}`, "aria-hidden": "true" }, state.letter);
}

export function hostLink(id, name) {
  return h("a", { class: "name", href: `#/host/${encodeURIComponent(id)}` }, name);
}

/** A command to copy; this page itself changes nothing. */
export function command(...words) {
  const text = words.map(quoteWord).join(" ");
  const button = h("button", {
    type: "button", class: "copy", "aria-label": `Copy: ${text}`,
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // no clipboard here: it is selected instead
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    },
  }, "Copy");
  const code = h("code", {}, text);
  return h("div", { class: "command" }, code, button);
}

function quoteWord(word) {
  return /^[\w@%+=:,./<>-]+$/.test(word) && !/[<>]/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function empty(title, ...rest) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...rest);
}

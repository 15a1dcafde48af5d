// Which view is shown, and what all views share: the connection, notes, the theme, keys.

import { age, fill, h, put, tick } from "./dom.js";
import { Fleet } from "./fleet.js";
import { History } from "./history.js";
import { Host } from "./host.js";
import { Operations } from "./operations.js";
import { Picture } from "./picture.js";

const VIEWS = { fleet: Fleet, host: Host, operations: Operations, history: History };
const THEMES = ["auto", "light", "dark"];
const picture = new Picture();
const main = document.getElementById("main");
const link = document.getElementById("link");
let view = null, shown = "", cleared = "";

function go(name, params) {
  const text = params.toString();
  history.replaceState(null, "", `#/${name}${text ? `?${text}` : ""}`);
  route();
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const slash = path.indexOf("/");
  let name = slash < 0 ? path : path.slice(0, slash);
  if (!Object.hasOwn(VIEWS, name)) name = "fleet";
  let id = "";
  try {
    id = name === "host" ? decodeURIComponent(path.slice(slash + 1)) : "";
  } catch {
    name = "fleet"; // half an escape, as of a link that was cut
  }
  const wanted = `${name}/${id}`;
  if (wanted !== shown) {
    view?.close();
    const again = shown !== "";
    shown = wanted;
    view = new VIEWS[name]({ picture, go }, id);
    fill(main, view.element);
    view.show(new URLSearchParams(query));
    if (again) {
      scrollTo(0, 0);
      (main.querySelector("h1") ?? main).focus({ preventScroll: true });
    }
  } else {
    view.show(new URLSearchParams(query));
  }
  for (const one of document.querySelectorAll("nav a")) {
    if (one.dataset.view === name || (name === "host" && one.dataset.view === "fleet")) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  entitle();
}

function entitle() {
  const title = `${view.title} · Hostler`;
  if (document.title !== title) document.title = title;
}

function showLink() {
  const { live, problem, at, heard } = picture;
  document.body.classList.toggle("stale", !live && Boolean(at));
  if (live) fill(link, h("span", { class: "dot on", "aria-hidden": "true" }), "Live");
  else if (at) {
    fill(link, h("span", { class: "dot", "aria-hidden": "true" }), "Not connected. This is the picture of ", age(at, "", " ago"), ".");
    link.title = `${problem?.message ?? ""} Connecting again. Last heard of at ${new Date(heard).toLocaleTimeString()}.`;
  } else put(link, problem ? "Not connected" : "Connecting");
  if (live) link.title = "";
  const refused = problem && [401, 403].includes(problem.status);
  if (problem?.reason === "NoSession" && at) location.reload(); // the session is over: what it showed goes
  document.getElementById("logout").hidden = !(live && loggedIn());
  if (problem && !at) {
    const text = JSON.stringify(problem);
    if (text !== cleared) fill(main, clearPage(problem, refused)); // what is typed there stays
    cleared = text;
  }
  else if (!main.contains(view.element)) fill(main, view.element);
  showNotes(refused && at ? [problem.message, ...picture.notes] : picture.notes);
}

/** Nothing was ever seen: say why, and what to do. */
function clearPage(problem, refused) {
  if (problem.reason === "NoSession") return loginForm(problem.message);
  if (refused) {
    return alone("You may not see this fleet.", h("p", {}, problem.message),
      h("p", {}, "Ask for ClusterRole ", h("code", {}, "hostler-viewer"), ", which ", h("code", {}, "view"), " contains, then load this page again."));
  }
  if (problem.status === 421) return alone("No replica of the operator leads yet.", h("p", {}, problem.message), h("p", {}, "This page goes on as soon as one does."));
  return alone("Nothing is known yet.", h("p", {}, problem.message), h("p", {}, "This page tries again by itself. Check that the operator runs: ", h("code", {}, "hostler status")));
}

/** Instead of a view. */
function alone(title, ...rest) {
  return h("div", { class: "empty" }, h("h1", { class: "empty-title" }, title), ...rest);
}

/** The page behind an Ingress. The token goes to the operator once; after that a cookie counts, which no script reads. */
function loginForm(message) {
  const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const said = h("p", { class: "problem", role: "alert" });
  const login = async (event) => {
    event.preventDefault();
    try {
      const response = await fetch("v1/session", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: field.value }),
      });
      if (response.ok) {
        sessionStorage.setItem("hostler-login", "1");
        return location.reload();
      }
      const { reason, message } = await response.json();
      put(said, reason === "BadCredential" ? "The API server does not accept this token." : message);
    } catch {
      put(said, "The operator cannot be reached.");
    }
    field.value = "";
    field.focus();
  };
  return h("form", { class: "login", onsubmit: login }, h("h1", {}, "Hostler"), h("p", {}, message),
    h("label", { for: "token" }, "Bearer token"), field, said, h("button", { type: "submit" }, "Log in"),
    h("p", { class: "muted" }, "For example ", h("code", {}, "oc whoami -t"), ", or of a ServiceAccount with ClusterRole hostler-viewer: ", h("code", {}, "kubectl create token NAME"), ". The session lasts an hour."));
}

function loggedIn() {
  try {
    return sessionStorage.getItem("hostler-login") === "1";
  } catch {
    return false; // no storage here
  }
}

async function logOut() {
  sessionStorage.removeItem("hostler-login");
  await fetch("v1/session", { method: "DELETE" });
  location.reload();
}

function showNotes(notes) {
  const region = document.getElementById("notes"), text = notes.join("\n");
  if (region.dataset.text === text) return;
  region.dataset.text = text;
  region.hidden = !notes.length;
  fill(region, notes.map((note) => h("p", {}, note)));
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  put(button, { auto: "Auto", light: "Light", dark: "Dark" }[theme]);
  button.setAttribute("aria-label", `Colours: ${theme}. Change`);
}

function storedTheme() {
  try {
    const found = localStorage.getItem("hostler-theme");
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto"; // no storage here
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  try {
    localStorage.setItem("hostler-theme", next);
  } catch {
    // kept until the page is closed
  }
  applyTheme(next);
});
document.getElementById("logout").addEventListener("click", logOut);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.matches?.("input, select, textarea") && !event.ctrlKey && !event.metaKey) {
    const search = document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "Escape" && event.target.id === "search") event.target.blur();
});
addEventListener("hashchange", route);
let waiting = null; // ids that changed; null: none
let drawn = 0; // when
picture.addEventListener("change", ({ detail }) => {
  if (waiting === null) {
    // The first change is shown at once; in a storm of them the page stays usable.
    const pause = picture.rows.size > 1000 ? 200 : 20;
    setTimeout(() => {
      const ids = waiting;
      waiting = null;
      view.update(ids);
      entitle();
      drawn = Date.now();
    }, Math.max(0, drawn + pause - Date.now()));
    waiting = new Set();
  }
  for (const id of detail.ids) waiting.add(id);
});
picture.addEventListener("link", showLink);
setInterval(tick, 1000);
applyTheme(storedTheme());
route();
showLink();
picture.run();

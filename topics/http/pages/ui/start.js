"use strict";
// From the address to a view, and the keyboard.

const VIEWS = new Map([
  ["overview", ["Overview", showOverview, "o"]],
  ["topics", ["Topics", showTopics, "t"]],
  ["queues", ["Queues", showQueues, "q"]],
  ["readers", ["Readers", showReaders, "e"]],
  ["routers", ["Routers", showRouters, "r"]],
]);

let _view = null;

/** Return a part of the address as it was meant; a % that begins no escape stands for itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Show the view that the address names. */
function route() {
  const [name = "", ...rest] = location.hash.replace(/^#\//, "").split("/").map(decoded);
  _view?.abort();
  _view = new AbortController();
  const main = document.getElementById("main");
  const chosen = VIEWS.has(name) ? name : name === "topic" ? "topics" : [...VIEWS.keys()][0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === chosen) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS.get(chosen)[0]} · topics`;
  const show = name === "topic" ? showTopic : VIEWS.get(chosen)[1];
  window.scrollTo(0, 0);
  show(main, rest, _view.signal)?.catch?.((error) => console.error(error));
}

function showHelp() {
  const lines = [["/", "to the filter"], ...[...VIEWS].map(([, [label, , letter]]) => [`g ${letter}`, label]),
    ["j  k", "next and previous row"], ["Ctrl Enter", "publish"], ["?", "this list"]];
  const shown = lines.map(([press, does]) => h("div", {}, h("dt", {}, press.split(" ").filter(Boolean).map((one) => h("kbd", {}, one))), h("dd", {}, does)));
  dialog("Keyboard", h("dl.keys", {}, shown), [h("button.primary", { value: "" }, "Close")]);
}

let _before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const before = _before;
  _before = event.key === "g" ? "g" : "";
  const rows = [...document.querySelectorAll("main tbody a.name, main .record > summary")];
  const at = rows.indexOf(document.activeElement);
  if (before === "g") {
    const found = [...VIEWS].find(([, [, , letter]]) => letter === event.key);
    if (found) location.hash = `#/${found[0]}`;
  } else if (event.key === "/" && document.getElementById("filter")) {
    event.preventDefault();
    document.getElementById("filter").focus();
  } else if (event.key === "?") showHelp();
  else if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
});

put(document.querySelector("nav"), [...VIEWS].map(([name, [label, , letter]]) => h("a", {
  href: `#/${name}`, "data-view": name, "aria-keyshortcuts": `g ${letter}`,
}, label)));
document.getElementById("help").addEventListener("click", showHelp);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
const _keyButton = document.getElementById("key");
_keyButton.hidden = !keys.asked;
_keyButton.addEventListener("click", async () => {
  if (await keys.ask("Enter another one. It replaces the key of this tab.")) route();
});
window.addEventListener("hashchange", route);
route();

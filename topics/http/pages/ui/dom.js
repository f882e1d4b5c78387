"use strict";
// Elements, made by calls. What comes from the server only ever becomes text: the policy of the page
// (require-trusted-types-for) refuses any other way.

/** Return an element: `h("button.quiet", { onclick, title }, "text", otherElement)`. Null children are left out. */
function h(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  return fill(element, attributes, children);
}

/** Return an element of SVG, made as by `h`. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

/** Append children: elements, texts, numbers, arrays of them. */
function put(element, ...children) {
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Replace all children. */
function set(element, ...children) {
  element.replaceChildren();
  return put(element, ...children);
}

/** Set a text, if it is another one: unchanged nodes keep a selection. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return a table with a caption for screen readers. columns: [title, class of its cells]. */
function table(caption, columns, rows) {
  const head = columns.map(([title, kind]) => h(kind ? `th.${kind}` : "th", { scope: "col" }, title));
  const body = h("tbody", {}, rows);
  return h("div.scroll", {}, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), body));
}

/** Return one row of `table`; cells: as its columns. */
function row(columns, cells, attributes = {}) {
  return h("tr", attributes, cells.map((cell, at) => h(columns[at][1] ? `td.${columns[at][1]}` : "td", {}, cell)));
}

/** Return a labelled field. */
function field(label, input, about = null) {
  return h("label.field", {}, h("span", {}, label), input, about ? h("small", {}, about) : null);
}

function choice(options, value, attributes = {}) {
  const shown = options.map((each) => h("option", { value: each, selected: each === value }, each));
  return h("select", attributes, shown);
}

/** Return a command to try, with a button that copies it. */
function command(text) {
  const button = h("button.quiet", {
    type: "button",
    onclick: async () => {
      await navigator.clipboard?.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1200);
    },
  }, "Copy");
  return h("div.command", {}, h("pre", { tabindex: "0", "aria-label": "command" }, text), button);
}

/** Return what stands in the place of a list without entries. */
function empty(title, about, ...more) {
  return h("div.empty", {}, h("strong", {}, title), h("p", {}, about), more);
}

/**
 * Return a line about what a list leaves out, and the function that sets it: it takes all, what is said before, and
 * whether there are even more, and returns those to show. again: called once a button has asked for more.
 */
function cutTo(most, again) {
  const step = most;
  const said = h("span");
  const more = h("button.quiet", { hidden: true, onclick: () => (most += step, again()) }, "Show more");
  return [h("p.hint.cut", { role: "status" }, said, more), (all, about = "", further = false) => {
    more.hidden = all.length <= most;
    say(said, about + (more.hidden ? "" : `${count(most)} of ${further ? "over " : ""}${count(all.length)} are shown. `));
    return all.slice(0, most);
  }];
}

function badge(text, kind = "") {
  return h(kind ? `span.badge.${kind}` : "span.badge", {}, text);
}

/** Show a modal dialog; its buttons close it. Return a promise of the pressed button's value, "" for Escape. */
function dialog(title, content, buttons) {
  const form = h("form", { method: "dialog" }, h("h2", {}, title), content, h("div.buttons", {}, buttons));
  const box = h("dialog", {}, form);
  document.body.append(box);
  box.showModal();
  return new Promise((resolve) => {
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue);
    });
  });
}

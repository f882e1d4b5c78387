"use strict";
// Small charts of the last minutes.

const POINTS = 120;
const _series = new Map(); // by name: they outlast a change of the view

/** Return the values of a chart; add one by `values.add(y)`. */
function series(name) {
  if (!_series.has(name)) {
    const values = [];
    values.add = (y) => {
      values.push({ at: Date.now(), y });
      if (values.length > POINTS) values.shift();
    };
    _series.set(name, values);
  }
  return _series.get(name);
}

/** Return a chart, { element, draw }. show: how a value is written; least: the highest value of a flat scale. */
function chart(title, values, show, { about = "", least = 0 } = {}) {
  const [width, height] = [240, 56];
  const now = h("strong", {}, "–");
  const most = h("small", {}, "");
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height + 4}`, role: "img", preserveAspectRatio: "none" }, area, line);
  const element = h("figure.chart", { title: about }, h("figcaption", {}, title, most), now, picture);
  function draw() {
    if (!values.length) return;
    const top = Math.max(least, ...values.map(({ y }) => y)) || 1;
    const step = width / (POINTS - 1);
    const from = width - (values.length - 1) * step;
    const points = values.map(({ y }, at) => [from + at * step, 2 + height - (y / top) * height]);
    const path = points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    line.setAttribute("d", path);
    area.setAttribute("d", `${path}L${width} ${height + 2}L${from.toFixed(1)} ${height + 2}Z`);
    const last = values.at(-1).y;
    say(now, show(last));
    const highest = Math.max(...values.map((value) => value.y));
    say(most, highest > 0 ? `most ${show(highest)}` : "");
    picture.setAttribute("aria-label", `${title}: ${show(last)} now, at most ${show(highest)} in this chart`);
  }
  draw();
  return { element, draw };
}

/** Return a bar of parts, [[name, number, class]]. */
function bar(parts) {
  const all = parts.reduce((sum, [, n]) => sum + n, 0);
  const pieces = parts.filter(([, n]) => n > 0).map(([name, n, kind]) => {
    const piece = h(`i.${kind}`, { title: `${name}: ${count(n)}` });
    piece.style.flexGrow = String(n / all);
    return piece;
  });
  const keysOf = parts.map(([name, n, kind]) => h("li", {}, h(`i.${kind}`), `${name} `, h("b", {}, count(n))));
  return h("div.states", {}, h("div.bar", { "aria-hidden": "true" }, pieces), h("ul", {}, keysOf));
}

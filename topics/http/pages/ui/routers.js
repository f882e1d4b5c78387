"use strict";
// Routers as a graph: topics are boxes, and what a router takes from one to another is a line.

const ROUTERS_SHOWN = 400;

/** Return the column of each topic: one more than the highest of its sources, cycles left aside. */
function columnsOf(routers) {
  const into = new Map();
  for (const { source, dest } of routers) {
    if (!into.has(source)) into.set(source, []);
    into.set(dest, [...(into.get(dest) ?? []), source]);
  }
  const columns = new Map();
  const walk = (topic, seen) => {
    if (columns.has(topic)) return columns.get(topic);
    if (seen.has(topic)) return -1;
    seen.add(topic);
    const column = 1 + Math.max(-1, ...into.get(topic).map((source) => walk(source, seen)));
    seen.delete(topic);
    columns.set(topic, column);
    return column;
  };
  for (const topic of into.keys()) walk(topic, new Set());
  return columns;
}

/** Return the place of each topic, { x, y }, and the size of all: those of a tree share rows with their sources. */
function placed(routers) {
  const columns = columnsOf(routers);
  const [wide, high] = [230, 46];
  const out = new Map();
  for (const { source, dest } of routers) out.set(source, [...(out.get(source) ?? []), dest]);
  const places = new Map();
  let next = 0;
  const put = (topic) => {
    if (places.has(topic)) return;
    const place = { x: columns.get(topic) * wide, y: 0 };
    places.set(topic, place);
    const first = next;
    for (const dest of out.get(topic) ?? []) if (columns.get(dest) > columns.get(topic)) put(dest);
    if (next === first) next += 1;
    place.y = ((first + next - 1) / 2) * high;
  };
  for (const topic of [...columns.keys()].sort((a, b) => columns.get(a) - columns.get(b))) put(topic);
  return { places, width: (Math.max(0, ...columns.values()) + 1) * wide - 40, height: next * high };
}

const short = (name, most = 24) => (name.length > most ? `${name.slice(0, most - 9)}…${name.slice(-8)}` : name);

function graph(routers, rates) {
  const { places, width, height } = placed(routers);
  const lines = routers.map(({ router, source, dest, forwarded_total: total, guarantee }) => {
    const [from, to] = [places.get(source), places.get(dest)];
    const [x1, y1, x2, y2] = [from.x + 190, from.y + 16, to.x, to.y + 16];
    const bend = x2 > x1 ? (x2 - x1) / 2 : 60;
    const rate = rates.get(router) ?? 0;
    const title = `${router}: ${count(total)} forwarded, ${guarantee.replaceAll("_", " ")}`;
    return svg("path", {
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, class: rate > 0 ? "edge busy" : "edge", "marker-end": "url(#tip)",
    }, svg("title", {}, title));
  });
  const boxes = [...places].map(([topic, { x, y }]) => svg("a", { href: `#/topic/${encodeURIComponent(topic)}`, "aria-label": topic },
    svg("rect", { x, y, width: 190, height: 32, rx: 7 }), svg("text", { x: x + 12, y: y + 20 }, short(topic)), svg("title", {}, topic)));
  const tip = svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8Z" })));
  return svg("svg", { class: "graph", width: width + 4, height: height + 4, viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: "group", "aria-label": `${many(routers.length, "router")} between ${many(places.size, "topic")}` }, tip, lines, boxes);
}

async function showRouters(main, _args, signal) {
  const [failure, failed] = failures();
  const picture = h("div.scroll.picture", { tabindex: "0", role: "region", "aria-label": "Graph of routers" });
  const [cut, shownOf] = cutTo(ROUTERS_SHOWN, () => look().catch(failed));
  const list = h("div", {}, h("p.hint", {}, "Loading …"));
  const columns = [["Router"], ["From"], ["To"], ["Forwarded", "number"], ["Rate", "number"], ["Guarantee", "wide"]];
  picture.hidden = true;
  set(main, h("div.title", {}, h("h1", {}, "Routers")), failure, cut, picture, list);
  let before = new Map();
  let at = 0;
  let drawn = "";
  const look = async () => {
    const all = [];
    let routers;
    let cursor = "";
    do {
      const page = await get(`/v0/routers?page_size=200&cursor=${encodeURIComponent(cursor)}`, signal);
      all.push(...page.routers);
      cursor = page.next_cursor;
      routers = shownOf(all, "", cursor);
    } while (cursor && routers.length === all.length);
    if (!routers.length) {
      picture.hidden = true;
      return void set(list, empty("No routers", "A router copies what one topic takes to another one, all of it or by tag:",
        command(curl("PUT", "/v0/routers/orders-eu", { source: "orders", dest: "orders-eu", filter: "eu" }))));
    }
    const now = performance.now();
    const rates = new Map(routers.map(({ router, forwarded_total: n }) => [router, before.has(router) ? ((n - before.get(router)) / (now - at)) * 1000 : 0]));
    before = new Map(routers.map(({ router, forwarded_total: n }) => [router, n]));
    at = now;
    const looks = JSON.stringify([...rates].map(([router, rate]) => [router, rate > 0]));
    if (looks !== drawn && !picture.contains(document.activeElement?.closest("svg a") ?? null)) {
      drawn = looks;
      picture.hidden = false;
      set(picture, graph(routers, rates));
    }
    set(list, table("Routers", columns, routers.map((one) => row(columns, [
      h("span.name", {}, one.router), linkTo(one.source), linkTo(one.dest), count(one.forwarded_total),
      rates.get(one.router) ? `${brief(rates.get(one.router))}/s` : "·", one.guarantee.replaceAll("_", " "),
    ]))));
    return routers.length > 100 ? 10000 : 3000;
  };
  every(3000, signal, look, failed);
}

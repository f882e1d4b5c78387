"use strict";
// The list of topics: a page of it at a time, with rates, and the class of each topic on this page.

const PAGE = 50;
const _states = new Map(); // topic: { at, state }, for a minute
const STATE_MS = 60000;

/** Return the state of a topic, not older than a minute. */
async function stateOf(topic, signal) {
  const kept = _states.get(topic);
  if (kept && Date.now() - kept.at < STATE_MS) return kept.state;
  const state = await get(ofTopic(topic, "?touch=false"), signal);
  if (_states.size > 2000) _states.clear();
  _states.set(topic, { at: Date.now(), state });
  return state;
}

/** Call `done(topic, state)` for the state of each topic, four requests at a time. */
function statesOf(topics, signal, done) {
  const left = [...topics];
  const work = async () => {
    while (left.length && !signal.aborted) {
      const topic = left.shift();
      const state = await stateOf(topic, signal).catch(() => null);
      if (state && !signal.aborted) done(topic, state);
    }
  };
  for (let at = 0; at < 4; at += 1) work();
}

const linkTo = (topic, rest = "") => h("a.name", { href: `#/topic/${encodeURIComponent(topic)}${rest}` }, topic);

const TOPIC_COLUMNS = [
  ["Topic"], ["Class", "wide"], ["Records", "number"], ["Size", "number wide"], ["Rate", "number"], ["Newest seq", "number wide"],
];

async function showTopics(main, _args, signal) {
  const [failure, failed] = failures();
  const prefix = h("input", { type: "search", placeholder: "Names that begin with …", "aria-label": "Prefix", id: "filter" });
  const about = h("p.hint", { "aria-live": "polite" });
  const list = h("div");
  const back = h("button.quiet", { onclick: () => (cursors.pop(), load()), disabled: true }, "Previous");
  const next = h("button.quiet", { onclick: () => (cursors.push(after), load()), disabled: true }, "Next");
  const added = h("button.primary", { onclick: () => newTopic() }, "New topic");
  set(main, h("div.title", {}, h("h1", {}, "Topics"), prefix, added), failure, list,
    h("div.pages", {}, about, h("span.grow"), back, next));
  let cursors = [""];
  let after = "";
  let rows = new Map();
  let page = 0;
  let typed;
  prefix.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      cursors = [""];
      load();
    }, 150);
  });

  async function load() {
    page += 1;
    await refresh(true).catch((error) => signal.aborted || failed(error));
  }

  function rowOf(topic) {
    const cells = { kind: h("span"), count: h("span"), size: h("span"), rate: h("span"), head: h("span") };
    const element = row(TOPIC_COLUMNS, [linkTo(topic), cells.kind, cells.count, cells.size, cells.rate, cells.head]);
    return { element, cells, head: null, at: 0 };
  }

  async function refresh(whole) {
    const mine = page;
    const query = new URLSearchParams({ page_size: PAGE, prefix: prefix.value.trim(), cursor: cursors.at(-1) });
    const answer = await get(`/v0/topics?${query}`, signal);
    if (mine !== page || signal.aborted) return;
    failed(null);
    const names = answer.topics.map(({ topic }) => topic);
    const fresh = whole || names.length !== rows.size || names.some((name) => !rows.has(name));
    if (fresh) {
      rows = new Map(names.map((name) => [name, rows.get(name) ?? rowOf(name)]));
      draw([...rows.values()].map(({ element }) => element));
      statesOf(names, signal, (topic, state) => {
        const cell = rows.get(topic)?.cells.kind;
        if (cell) set(cell, badge(state.config.durability), state.type === "queue" ? badge("queue", "accent") : null);
      });
    }
    const now = performance.now();
    for (const topic of answer.topics) {
      const shown = rows.get(topic.topic);
      say(shown.cells.count, count(topic.count));
      say(shown.cells.size, bytes(topic.bytes));
      say(shown.cells.head, count(topic.head_seq));
      if (shown.head !== null && topic.head_seq >= shown.head) {
        const rate = ((topic.head_seq - shown.head) / (now - shown.at)) * 1000;
        say(shown.cells.rate, rate ? `${brief(rate)}/s` : "·");
        shown.element.classList.toggle("busy", rate > 0);
      } else say(shown.cells.rate, "·");
      [shown.head, shown.at] = [topic.head_seq, now];
    }
    after = answer.next_cursor ?? "";
    next.disabled = !after;
    back.disabled = cursors.length < 2;
    const first = (cursors.length - 1) * PAGE + 1;
    say(about, names.length ? `${count(first)} to ${count(first + names.length - 1)}, by name` : "");
  }

  function draw(elements) {
    if (elements.length) set(list, table("Topics", TOPIC_COLUMNS, elements));
    else if (prefix.value.trim()) set(list, empty("No topic begins so", "Try a shorter prefix. Names distinguish case."));
    else {
      const body = { records: [{ data: { sku: 1 }, tag: "eu" }] };
      set(list, empty("No topics yet", "A write creates its topic. Try this in a terminal, or press New topic:"),
        command(curl("POST", "/v0/topics/orders", body)));
    }
  }

  async function newTopic() {
    const name = h("input", { required: true, maxlength: 255, pattern: "[A-Za-z0-9][A-Za-z0-9._:\\-]*", autofocus: true });
    const type = choice(["log", "queue"], "log");
    const durability = choice(["disk", "fsync", "memory", "ephemeral"], "disk");
    const content = [
      field("Name", name, "letters, digits, and . _ : - after the first"),
      field("Type", type, "a log keeps records; a queue leases them as jobs"),
      field("Class", durability, "fsync: on stable storage before the answer"),
    ];
    const buttons = [h("button.primary", { value: "make" }, "Create"), h("button.quiet", { value: "", formnovalidate: true }, "Cancel")];
    if ((await dialog("New topic", content, buttons)) !== "make") return;
    try {
      await call("PUT", ofTopic(name.value), { type: type.value, durability: durability.value });
      location.hash = `#/topic/${encodeURIComponent(name.value)}/publish`;
    } catch (error) {
      failed(error);
    }
  }

  set(list, h("p.hint", {}, "Loading …"));
  every(3000, signal, () => refresh(false), failed);
}

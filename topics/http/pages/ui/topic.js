"use strict";
// One topic: its numbers, and a panel of records, jobs, readers, or its configuration.

const PANELS = new Map([
  ["jobs", ["Jobs", showJobs, "queue"]],
  ["records", ["Records", showRecords]],
  ["publish", ["Publish", showPublish]],
  ["readers", ["Readers", showTopicReaders]],
  ["config", ["Configuration", showConfig]],
]);

function numbers(pairs) {
  return h("dl.numbers", {}, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

async function showTopic(main, [topic, wanted = "records"], signal) {
  const [failure, failed] = failures();
  const about = h("div");
  const panel = h("section.panel", { id: "panel", role: "tabpanel" });
  const marks = h("span");
  const tabs = h("div.tabs", { role: "tablist", "aria-label": "Of this topic" });
  set(main, h("div.title", {}, h("h1.name", {}, topic), marks), failure, about, tabs, panel);
  document.title = `${topic} · topics`;
  let last = null;

  function show(state) {
    const parts = [
      ["records", count(state.count)], ["size", bytes(state.bytes)],
      ["seqs", state.count ? `${count(state.earliest_seq)} to ${count(state.head_seq)}` : `next is ${count(state.next_seq)}`],
      ["last write", ago(state.last_write_ts)],
    ];
    const now = performance.now();
    if (last) parts.push(["rate", `${brief(Math.max(0, ((state.head_seq - last.head) / (now - last.at)) * 1000))}/s`]);
    last = { head: state.head_seq, at: now };
    if (state.config.cap_records) parts.push(["cap", many(state.config.cap_records, "record")]);
    if (state.config.cap_bytes) parts.push(["cap", bytes(state.config.cap_bytes)]);
    if (state.config.ttl_ms) parts.push(["expiry", exact(state.config.ttl_ms)]);
    set(about, numbers(parts));
    set(marks, badge(state.config.durability), state.type === "queue" ? badge("queue", "accent") : null);
  }

  let state;
  try {
    // The list is asked first: an absent topic is nothing that the console of a browser should show as an error.
    const { topics } = await get(`/v0/topics?page_size=1&prefix=${encodeURIComponent(topic)}`, signal);
    if (topics[0]?.topic !== topic) {
      const body = { records: [{ data: { sku: 1 } }] };
      return set(panel, empty("There is no such topic", "A write creates it:", command(curl("POST", ofTopic(topic), body))));
    }
    state = await get(ofTopic(topic, "?touch=false"), signal);
  } catch (error) {
    if (signal.aborted) return;
    failed(error);
    // A key may write what it may not read.
    if (error.status === 403) showPublish(panel, topic, signal, { type: "queue" });
    return;
  }
  show(state);
  const names = [...PANELS].filter(([, [, , of]]) => !of || of === state.type);
  const chosen = names.some(([name]) => name === wanted) ? wanted : "records";
  set(tabs, names.map(([name, [label]]) => h("a", {
    role: "tab", href: `#/topic/${encodeURIComponent(topic)}/${name}`, "aria-selected": String(name === chosen), "aria-controls": "panel",
  }, label)));
  tabs.querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
  PANELS.get(chosen)[1](panel, topic, signal, state);
  every(3000, signal, async () => show(await get(ofTopic(topic, "?touch=false"), signal)), failed);
}

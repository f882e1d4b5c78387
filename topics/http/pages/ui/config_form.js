"use strict";
// The configuration of a topic, and what a change would do before it is made.

const CLASSES = {
  ephemeral: "records are in memory only: a restart leaves none of them",
  memory: "an answer comes once records are buffered: a crash may take some of them",
  disk: "an answer comes once the operating system has the records: a kill takes none, a power cut may take the last ones",
  fsync: "an answer comes once records are on stable storage: each commit waits for a sync",
};
const FIELDS = [
  ["durability", "Class", Object.keys(CLASSES), "what an answer to a write promises"],
  ["ttl_ms", "Expires after (ms)", 0, "0: never"],
  ["cap_records", "Most records", 0, "0: no cap"],
  ["cap_bytes", "Most bytes", 0, "0: no cap"],
  ["discard", "When full", ["old", "reject"], "evict the oldest, or refuse the write"],
  ["idempotency_window_ms", "Idempotency window (ms)", 0, "how long a key of a write is known"],
  ["priority", "Priority", null, "empty: by how recently it was read"],
  ["dedupe_node", "Readers leave out their own", true, "off: the node of a reader is ignored"],
];
const QUEUE_FIELDS = [
  ["lease_ms", "Lease (ms)", 0, "of a claim without its own"],
  ["max_deliveries", "Most deliveries", 0, "0: any number"],
  ["dead_letter", "Dead letters to", "", "a topic; empty: none"],
  ["claim_jitter_ms", "Claims wait (ms)", 0, "to be served together"],
  ["leases_durable", "Leases outlast a restart", true, "off: every job is ready after one"],
];

/** Return what a change would do, one sentence each. expired: what is known of records older than the new ttl_ms. */
function effects(state, change, expired) {
  const after = { ...state.config, ...change };
  const said = [];
  if (change.durability) said.push(`From now on ${CLASSES[after.durability]}. What was acknowledged before keeps the promise that it had.`);
  if ("cap_records" in change || "cap_bytes" in change || "discard" in change) {
    if (after.discard === "old") {
      const over = after.cap_records ? Math.max(0, state.count - after.cap_records) : 0;
      const bytesOver = after.cap_bytes ? Math.max(0, state.bytes - after.cap_bytes) : 0;
      if (over) said.push(`Evicts the ${many(over, "oldest record")} of ${count(state.count)} at once, for good.`);
      if (bytesOver) said.push(`Evicts the oldest records, about ${bytes(bytesOver)} of ${bytes(state.bytes)}, at once and for good.`);
      if (over || bytesOver) said.push("Readers that have not seen them get a gap with the reason cap.");
      else if (after.cap_records || after.cap_bytes) said.push("Evicts nothing now. Once the cap is reached, each write evicts the oldest.");
      else said.push("No cap: nothing is evicted any more. What was evicted stays gone.");
    } else {
      said.push("Evicts nothing. A write without room is refused (422 topic_full) until records are deleted, acknowledged or expire.");
      const full = (after.cap_records && state.count >= after.cap_records) || (after.cap_bytes && state.bytes >= after.cap_bytes);
      if (full) said.push("The topic is full by that cap: its next write is refused.");
    }
  }
  if ("ttl_ms" in change) {
    if (after.ttl_ms) said.push(expired || `Records expire ${exact(after.ttl_ms)} after they were written.`);
    else said.push("Nothing expires any more. What has expired stays gone.");
  }
  if ("idempotency_window_ms" in change) said.push(after.idempotency_window_ms ? `A key sent again within ${exact(after.idempotency_window_ms)} appends nothing.` : "Keys are not known any more: a write sent again appends again.");
  if ("priority" in change) said.push(after.priority === null ? "Priority follows how recently the topic was read." : `When time is short its turn comes by priority ${after.priority} (-1000 to 1000).`);
  if ("dedupe_node" in change) said.push(after.dedupe_node ? "Readers that name their node do not get its records." : "Readers get all records, also those of their own node.");
  if ("lease_ms" in change) said.push(`Claims from now on hold a job for ${exact(after.lease_ms)}; leases that run keep their end.`);
  if ("max_deliveries" in change) said.push(after.max_deliveries ? `A job delivered ${many(after.max_deliveries, "time")} without an ack ${after.dead_letter ? `moves to ${after.dead_letter}` : "is dropped"}.` : "A job is delivered until it is acknowledged.");
  if ("dead_letter" in change) said.push(after.dead_letter ? `Jobs delivered too often move to ${after.dead_letter}.${after.max_deliveries ? "" : " Set most deliveries, too: without it there are none."}` : "Jobs delivered too often are not kept.");
  if ("claim_jitter_ms" in change) said.push(after.claim_jitter_ms ? `A claim waits ${exact(after.claim_jitter_ms)}, and is served together with others.` : "Claims are served at once.");
  if ("leases_durable" in change) said.push(after.leases_durable ? "Leases that run keep their holder and end over a restart." : "After a restart every job is ready, counted from 0.");
  return said;
}

async function showConfig(panel, topic, signal, first) {
  let state = first;
  const [failure, failed] = failures();
  const inputs = new Map();
  const said = h("ul.effects", { "aria-live": "polite" });
  const shell = h("div");
  const apply = h("button.primary", { type: "submit", disabled: true }, "Change the topic");
  const reset = h("button.quiet", { type: "button", onclick: () => (fillIn(), look()) }, "Undo");
  const wanted = state.type === "queue" ? [...FIELDS, ...QUEUE_FIELDS] : FIELDS;
  const shown = wanted.map(([name, label, kind, about]) => {
    let input;
    if (Array.isArray(kind)) input = choice(kind, "", { name });
    else if (kind === true) input = h("input", { type: "checkbox", name });
    else input = h("input", { type: kind === "" ? "text" : "number", name, min: kind === 0 ? 0 : null });
    inputs.set(name, [input, kind]);
    return field(label, input, about);
  });
  const form = h("form", { onsubmit: save, oninput: look }, h("div.fields", {}, shown), h("div.buttons", {}, apply, reset), failure);
  set(panel, h("div.columns", {}, form, h("section", {}, h("h3", {}, "What this would do"), said, h("h3", {}, "The same with curl"), shell)));
  let looked = 0;

  function fillIn() {
    for (const [name, [input, kind]] of inputs) {
      if (kind === true) input.checked = state.config[name];
      else input.value = state.config[name] ?? "";
    }
  }

  function changes() {
    const found = {};
    for (const [name, [input, kind]] of inputs) {
      const value = kind === true ? input.checked : Array.isArray(kind) ? input.value
        : input.value.trim() === "" ? (kind === 0 ? 0 : null) : kind === "" ? input.value.trim() : Number(input.value);
      if (value !== state.config[name]) found[name] = value;
    }
    return found;
  }

  async function look() {
    const mine = (looked += 1);
    const change = changes();
    const some = Object.keys(change).length > 0;
    apply.disabled = !some;
    tellOf(change, "");
    if (!change.ttl_ms || state.count === 0) return;
    await pause(300, signal);
    if (mine !== looked || signal.aborted) return;
    const since = Date.now() - change.ttl_ms;
    const body = { from: { time: Math.max(0, since) }, limit: 1 };
    const page = await call("POST", ofTopic(topic, "/diff"), body, { signal }).catch(() => null);
    if (!page || mine !== looked) return;
    const left = page.records[0]?.$seq ?? page.head_seq + 1;
    const most = Math.min(state.count, left - page.earliest_seq);
    const when = `Records expire ${exact(change.ttl_ms)} after they were written`;
    tellOf(change, most > 0 ? `${when}: up to ${many(most, "record")} of ${count(state.count)} at once, those before ${clock(since)}.` : `${when}: none of those that are here does so now.`);
  }

  function tellOf(change, expired) {
    const some = Object.keys(change).length > 0;
    set(said, some ? effects(state, change, expired).map((text) => h("li", {}, text)) : h("li.hint", {}, "Nothing is changed yet."));
    set(shell, some ? command(curl("PATCH", ofTopic(topic), change)) : command(curl("GET", ofTopic(topic, "?touch=false"))));
  }

  async function save(event) {
    event.preventDefault();
    try {
      await call("PATCH", ofTopic(topic), changes(), { signal });
      _states.delete(topic);
      state = await get(ofTopic(topic, "?touch=false"), signal);
      failed(null);
      fillIn();
      await look();
      set(said, h("li.good", {}, "Changed."));
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  fillIn();
  look();
}

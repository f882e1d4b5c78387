"use strict";
// Records of one topic: the newest, those before, those that come, and gaps as rows of their own.

const ROWS = 500;
const NEWEST = 50;
const REASONS = {
  cap: "evicted by a cap", ttl: "expired", mixed: "evicted and expired", crash: "lost in a crash",
  source_trim: "lost before a router forwarded them", recreated: "the topic was created again",
  from_seq_too_old: "gone before they were read",
};

/** Return the row of a record: one line, and all of it once it is opened. */
function recordRow(record) {
  const isBytes = record.data_base64 !== undefined;
  const line = isBytes ? `${bytes(unpacked(record.data_base64))} (not JSON)` : json(record.data);
  const summary = h("summary", {},
    h("span.seq", {}, record.$seq),
    h("time", { datetime: new Date(record.$ts).toISOString(), title: new Date(record.$ts).toISOString() }, clock(record.$ts)),
    h("span.marks", {}, record.$tag === undefined ? null : h("bdi.badge.accent", { title: "tag" }, visible(record.$tag)),
      record.$node === undefined ? null : h("bdi.badge", { title: "node" }, visible(record.$node))),
    h("bdi.data", { dir: "ltr" }, line.length > 400 ? `${line.slice(0, 400)} …` : line));
  const whole = h("div.whole");
  const element = h("details.record", {
    ontoggle: () => {
      if (!element.open || whole.firstChild) return;
      const more = Object.entries(record).filter(([name]) => !["data", "data_base64", "meta", "$seq", "$ts"].includes(name));
      put(whole, h("pre", { tabindex: "0", dir: "ltr" }, isBytes ? record.data_base64 : json(record.data, 2)));
      if (record.meta !== undefined) put(whole, h("h4", {}, "meta"), h("pre", { tabindex: "0", dir: "ltr" }, json(record.meta, 2)));
      if (more.length) put(whole, h("p.hint", {}, more.map(([name, value]) => `${name} ${json(value)}`).join("   ")));
    },
  }, summary, whole);
  return element;
}

/** Return the row of lost records. */
function gapRow({ gap_from: from, gap_to: to, reason }) {
  const which = to > from ? `Seqs ${count(from)} to ${count(to)}` : `Seq ${count(from)}`;
  return h("div.gap", { role: "note" }, h("strong", {}, which), ` ${REASONS[reason] ?? "lost"}`, h("code", {}, reason));
}

async function showRecords(panel, topic, signal) {
  const [failure, failed] = failures();
  const list = h("div.records", { role: "log", "aria-label": "Records, newest first", "aria-live": "off" });
  const state = h("span.live", { role: "status" }, "…");
  const toggle = h("button.quiet", { "aria-pressed": "true" }, "Pause");
  const match = h("input", { type: "search", placeholder: "tag, or beginning*", "aria-label": "Only records with this tag", id: "filter" });
  const older = h("button.quiet", { onclick: () => loadOlder().catch(failed), disabled: true }, "Older records");
  const note = h("p.hint");
  set(panel, h("div.tools", {}, state, toggle, h("span.grow"), match), failure, list, h("div.pages", {}, note, h("span.grow"), older));

  let run = null;
  let lowest = null;
  let waiting = [];
  let frame = 0;
  let at = 0;
  const options = () => ({ include_tags: true, ...(match.value.trim() ? { match: match.value.trim() } : {}) });

  function showSoon(element) {
    waiting.push(element);
    if (waiting.length > ROWS) waiting = waiting.slice(-ROWS);
    // A timer beside the frame: a hidden page has no frames, and its rows are needed all the same.
    frame ||= setTimeout(flush, 60);
  }

  function flush() {
    frame = 0;
    list.querySelector(".nothing")?.remove();
    list.prepend(...waiting.reverse());
    waiting = [];
    while (list.children.length > ROWS) {
      list.lastElementChild.remove();
      lowest = null;
    }
    if (lowest === null) older.disabled = true;
  }

  /** Follow the topic until it is paused: a session, its stream, and another session when that has ended. */
  async function follow(from, mine) {
    let cursor = from;
    let waits = 500;
    while (!mine.aborted) {
      try {
        await shown(mine);
        const body = { topics: { [topic]: typeof cursor === "number" ? { from_seq: cursor } : { from: cursor } }, ...options() };
        const session = await call("POST", "/v0/watch", body, { signal: mine });
        if (typeof cursor !== "number") cursor = session.topics[topic].from_seq;
        for await (const { event, data } of events(session.stream_url, mine)) {
          failed(null);
          waits = 500;
          if (event === "record") {
            for (const record of data.records) {
              lowest = lowest === null && list.children.length + waiting.length < ROWS ? record.$seq : lowest;
              showSoon(recordRow(record));
            }
            at = cursor = data.to_seq;
          } else if (event === "tombstone") {
            showSoon(gapRow(data));
            at = cursor = data.reason === "recreated" ? data.earliest_seq - 1 : data.gap_to;
          } else if (event === "caught-up") {
            at = cursor = Math.max(typeof cursor === "number" ? cursor : 0, data.head_seq);
            mark("live");
            if (!list.children.length && !waiting.length) nothing();
            older.disabled = lowest === null || lowest <= 1;
          } else if (event === "topic-deleted") {
            mark("deleted");
            return failed(new Refused(404, "topic_not_found", `The topic ${topic} was deleted.`));
          }
        }
      } catch (error) {
        if (mine.aborted) return;
        failed(error);
        if ([401, 403, 404].includes(error.status)) return mark("paused");
      }
      mark("again");
      await pause(waits, mine);
      waits = Math.min(waits * 2, 10000);
    }
  }

  function nothing() {
    if (match.value.trim()) return set(list, h("div.nothing", {}, empty("No record with this tag", "The newest ones are looked through. New ones appear here.")));
    const body = { records: [{ data: { sku: 1 } }] };
    set(list, h("div.nothing", {}, empty("No records", "New ones appear here as they are written. Try it:", command(curl("POST", ofTopic(topic), body)))));
  }

  function mark(how) {
    const words = { live: "live", paused: "paused", again: "connecting again", deleted: "deleted" };
    state.className = `live ${how}`;
    say(state, words[how]);
    toggle.textContent = how === "paused" ? "Continue" : "Pause";
    toggle.setAttribute("aria-pressed", String(how !== "paused"));
  }

  function start(from) {
    run?.abort();
    run = new AbortController();
    signal.addEventListener("abort", () => run.abort());
    follow(from, run.signal);
  }

  toggle.addEventListener("click", () => {
    if (toggle.getAttribute("aria-pressed") === "false") return start(at || { last: NEWEST });
    run.abort();
    mark("paused");
  });
  let typed;
  match.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      set(list);
      [lowest, at] = [null, 0];
      say(note, "");
      start({ last: NEWEST });
    }, 250);
  });

  /** Return the rows above a cursor and below `end`, each with its seq, or null if they are very many. */
  async function rowsAbove(from, end) {
    const rows = [];
    for (let cursor = from; cursor < end - 1;) {
      const body = { from_seq: cursor, limit: Math.min(1000, end - 1 - cursor), ...options() };
      const page = await call("POST", ofTopic(topic, "/diff"), body, { signal });
      // A gap is said to begin at the cursor: where it does is known at the beginning, and once what is before it was read.
      const gap = cursor === 0 || cursor > from ? page.tombstone : null;
      if (gap) rows.push([gap.gap_from, gapRow(gap)]);
      rows.push(...page.records.filter(({ $seq }) => $seq < end).map((record) => [record.$seq, recordRow(record)]));
      if (rows.length > 1000) return null;
      if (page.caught_up) break;
      cursor = page.next_from_seq;
    }
    return rows;
  }

  /** Show up to 50 rows before the lowest one: the range widens until there are some, and halves while they are very many. */
  async function loadOlder() {
    older.disabled = true;
    const end = lowest;
    let [tooMany, none, width] = [-1, end - 1, NEWEST];
    let rows = [];
    while (none > tooMany + 1 && !rows?.length) {
      const from = tooMany < 0 ? Math.max(0, end - 1 - width) : Math.floor((tooMany + none) / 2);
      rows = await rowsAbove(from, end);
      if (rows === null) tooMany = from;
      else none = from;
      width *= 8;
    }
    if (lowest !== end) return;
    rows = (rows ?? []).slice(-NEWEST);
    list.append(...rows.map(([, element]) => element).reverse());
    lowest = rows[0]?.[0] ?? none + 1;
    older.disabled = lowest <= 1;
    if (lowest <= 1) say(note, "This is the beginning.");
  }

  start({ last: NEWEST });
}

async function showPublish(panel, topic, signal, state) {
  const [failure, failed] = failures();
  const data = h("textarea", { rows: 9, spellcheck: "false", "aria-label": "Data", value: '{\n  "sku": 1\n}' });
  const tag = h("input", { maxlength: 256 });
  const node = h("input", { maxlength: 128 });
  const ttl = h("input", { type: "number", min: 0, placeholder: "none" });
  const delay = h("input", { type: "number", min: 0, placeholder: "none" });
  const hint = h("p.hint", { "aria-live": "polite" });
  const button = h("button.primary", { type: "submit" }, "Publish");
  const asText = h("button.quiet", { type: "button", hidden: true, onclick: () => publish(JSON.stringify(data.value)) }, "Publish as text");
  const answers = h("ol.answers", { "aria-live": "polite" });
  const shell = h("div");
  const form = h("form.publish", { onsubmit: (event) => (event.preventDefault(), publish(data.value)) },
    field("Data (JSON)", data), h("div.fields", {}, field("Tag", tag), field("Node", node), field("Expires after (ms)", ttl),
      state.type === "queue" ? field("Not before (ms)", delay) : null),
    hint, h("div.buttons", {}, button, asText, h("span.hint", {}, h("kbd", {}, "Ctrl"), " + ", h("kbd", {}, "Enter"))), failure);
  set(panel, h("div.columns", {}, form, h("section", {}, h("h3", {}, "Published"), answers, h("h3", {}, "The same with curl"), shell)));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), publish(data.value));
  });
  form.addEventListener("input", look);

  /** Return the body. text: of the data as JSON, which is sent as it is: numbers keep their digits. */
  function bodyOf(text) {
    const more = [];
    for (const [name, input, make] of [["tag", tag, String], ["node", node, String], ["ttl_ms", ttl, Number], ["delay_ms", delay, Number]]) {
      if (input.value !== "") more.push(`,${JSON.stringify(name)}:${JSON.stringify(make(input.value))}`);
    }
    return `{"records":[{"data":${text}${more.join("")}}]}`;
  }

  function look() {
    let problem = "";
    try {
      JSON.parse(data.value);
    } catch (error) {
      problem = error.message;
    }
    say(hint, problem ? `Not JSON: ${problem}` : "");
    button.disabled = Boolean(problem);
    asText.hidden = !problem;
    const compact = problem ? JSON.stringify(data.value) : data.value.trim();
    set(shell, command(curl("POST", ofTopic(topic), bodyOf(compact))));
  }

  async function publish(text) {
    try {
      JSON.parse(text);
      const answer = await call("POST", ofTopic(topic), bodyOf(text), { signal });
      failed(null);
      const took = answer.performance.server_total_ms;
      answers.prepend(h("li", {}, h("b", {}, `seq ${answer.last_seq}`), ` in ${span(took)}`,
        answer.performance.fsync_ms ? `, ${span(answer.performance.fsync_ms)} of it for the sync` : ""));
      while (answers.children.length > 8) answers.lastElementChild.remove();
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }
  look();
}

"use strict";
// Queues and their jobs, dead letters, and named readers.

const LISTED = 200;
const LEFT = ["ready", "leased", "delayed", "dead"];

async function showQueues(main, _args, signal) {
  const [failure, failed] = failures();
  const [cut, shownOf] = cutTo(LISTED, () => look().catch(failed));
  const list = h("div", {}, h("p.hint", {}, "Loading …"));
  const columns = [["Queue"], ["Ready", "number"], ["Leased", "number"], ["Delayed", "number wide"], ["Dead-lettered", "number"], ["Dead letters in", "wide"]];
  set(main, h("div.title", {}, h("h1", {}, "Queues")), failure, cut, list);
  const look = async () => {
    const [found, waits] = await metrics(["topic_queue_ready", "topic_queue_in_flight", "queue_topics", "topic_metrics_truncated"], signal);
    const one = (name) => found.get(name)[0]?.value ?? 0;
    const named = found.get("topic_queue_ready").sort((a, b) => b.value - a.value);
    const leased = new Map(found.get("topic_queue_in_flight").map(({ labels, value }) => [labels.topic, value]));
    const unnamed = one("topic_metrics_truncated") && one("queue_topics") > named.length;
    const queues = shownOf(named, unnamed ? `Listed are the queues among the first 1,000 topics: ${count(named.length)} of ${count(one("queue_topics"))}. Topics lists the others, with a badge. ` : "");
    if (!queues.length) {
      set(list, !unnamed && empty("No queues", "A queue leases its records as jobs, and takes back what is not acknowledged:",
        command(curl("PUT", "/v0/topics/jobs", { type: "queue", max_deliveries: 5, dead_letter: "jobs.dead" }))));
      return waits;
    }
    const cells = new Map();
    set(list, table("Queues", columns, queues.map(({ labels: { topic }, value }) => {
      const more = [h("span"), h("span"), h("span")];
      cells.set(topic, more);
      return row(columns, [linkTo(topic, "/jobs"), count(value), count(leased.get(topic) ?? 0), ...more]);
    })));
    statesOf([...cells.keys()], signal, (topic, { queue, config }) => {
      const [delayed, dead, into] = cells.get(topic);
      say(delayed, count(queue?.delayed ?? 0));
      say(dead, count(queue?.dead_lettered ?? 0));
      if (config.dead_letter) set(into, linkTo(config.dead_letter));
    });
    return waits;
  };
  every(3000, signal, look, failed);
}

async function showJobs(panel, topic, signal) {
  const [failure, failed] = failures();
  const states = h("div");
  const attempts = h("div");
  const letters = h("div.records");
  const note = h("p.hint", { role: "status" });
  const some = h("button", { onclick: () => redrive({ seqs: [...chosen] }), disabled: true }, "Redrive the chosen");
  const all = h("button", { onclick: redriveAll, disabled: true }, "Redrive all");
  const more = h("button.quiet", { onclick: () => load().catch(failed), hidden: true }, "More");
  set(panel, failure, states, h("h2", {}, "Dead letters"), h("div.tools", {}, some, all, note), letters, h("div.pages", {}, h("span.grow"), more), attempts);
  const chosen = new Set();
  let cursor = 0;
  let into = null;

  function choose() {
    some.disabled = chosen.size === 0;
    some.textContent = chosen.size ? `Redrive ${count(chosen.size)} chosen` : "Redrive the chosen";
  }

  async function load() {
    const page = await get(ofTopic(topic, `/dead?limit=50&from_seq=${cursor}`), signal);
    cursor = page.next_from_seq;
    into = page.dead_letter;
    letters.querySelector(".nothing")?.remove();
    for (const record of page.dead) {
      const mark = h("input", {
        type: "checkbox", "aria-label": `Choose ${record.$seq}`,
        onchange: () => {
          if (mark.checked) chosen.add(record.$seq);
          else chosen.delete(record.$seq);
          choose();
        },
      });
      letters.append(h("div.letter", {}, mark, recordRow(record)));
    }
    more.hidden = page.caught_up;
    all.disabled = !letters.children.length;
    if (!letters.children.length) {
      const text = into ? `Jobs that are delivered too often move to ${into}.` : "This queue has no dead-letter topic: set one in its configuration.";
      letters.append(h("div.nothing", {}, empty("No dead letters", text)));
    }
  }

  function again() {
    chosen.clear();
    choose();
    set(letters);
    cursor = 0;
    return load();
  }

  async function redrive(body) {
    try {
      const answer = await call("POST", ofTopic(topic, "/redrive"), body, { signal });
      failed(null);
      say(note, `${many(answer.redriven, "job")} ready again${answer.skipped.length ? `, ${count(answer.skipped.length)} were gone` : ""}.`);
      await again();
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  async function redriveAll() {
    const content = h("p", {}, `All dead letters of ${topic} become jobs again. Each counts its deliveries from 0.`);
    const buttons = [h("button.primary", { value: "all" }, "Redrive all"), h("button.quiet", { value: "" }, "Cancel")];
    if ((await dialog("Redrive all dead letters?", content, buttons)) !== "all") return;
    try {
      let [done, from] = [0, 0];
      for (;;) {
        const answer = await call("POST", ofTopic(topic, "/redrive"), { all: true, from_seq: from }, { signal });
        [done, from] = [done + answer.redriven, answer.next_from_seq];
        if (answer.caught_up) break;
      }
      failed(null);
      say(note, `${many(done, "job")} ready again.`);
      await again();
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  const columns = [["Job", "number"], ["Deliveries", "number"], ["Last attempt"], ["Reason", "wide"]];
  load().catch((error) => signal.aborted || failed(error));
  every(3000, signal, async () => {
    const { queue } = await get(ofTopic(topic, "?touch=false&include_attempts=true"), signal);
    const numbersOf = [queue.ready, queue.in_flight, queue.delayed ?? 0, queue.dead_lettered];
    set(states, bar(["ready", "leased", "delayed", "moved to dead letters since the start"].map((name, at) => [name, numbersOf[at], LEFT[at]])));
    const rows = (queue.failed ?? []).slice(0, 20).map((job) => {
      const { node, ended, reason = "" } = job.attempts.at(-1);
      return row(columns, [count(job.$seq), count(job.deliveries), h("bdi", {}, `${ended} by ${visible(node)}`), h("bdi", {}, visible(reason))]);
    });
    if (rows.length && !attempts.contains(document.activeElement)) set(attempts, h("h2", {}, "Jobs that failed before"), table("Jobs with attempts", columns, rows));
    else if (!rows.length) set(attempts);
  }, failed);
}

const READER_COLUMNS = [["Reader"], ["Lag", "number"], ["Oldest", "number"], ["Committed", "number"], ["Handed out", "number wide"], ["Pages out", "number wide"], ["Settings", "wide"]];

async function showTopicReaders(panel, topic, signal) {
  const [failure, failed] = failures();
  const list = h("div");
  set(panel, failure, list);
  every(3000, signal, async () => {
    const { readers } = await get(ofTopic(topic, "/readers"), signal);
    if (!readers.length) {
      const path = ofTopic(topic, "/readers/billing");
      return void set(list, empty("No named readers", "A named reader is a cursor that the topic remembers. Make one, and read its first page:",
        command(curl("PUT", path, {})), command(curl("POST", `${path}/read`, { limit: 10 }))));
    }
    set(list, table("Named readers", READER_COLUMNS, readers.map((reader) => row(READER_COLUMNS, [
      h("span.name", {}, reader.reader), count(reader.lag_records), reader.lag_records ? span(reader.lag_ms) : "·", count(reader.committed),
      count(reader.position), count(reader.pages),
      [badge(reader.delivery), reader.holds ? badge("holds", "warn") : null, reader.trims ? badge("trims", "accent") : null],
    ]))));
  }, failed);
}

async function showReaders(main, _args, signal) {
  const [failure, failed] = failures();
  const [cut, shownOf] = cutTo(LISTED, () => look().catch(failed));
  const list = h("div", {}, h("p.hint", {}, "Loading …"));
  const columns = [["Reader"], ["Topic"], ["Lag", "number"], ["Oldest", "number"]];
  set(main, h("div.title", {}, h("h1", {}, "Readers"), h("span.hint", {}, "those that lag most first")), failure, cut, list);
  const look = async () => {
    const [found, waits] = await metrics(["reader_lag", "reader_lag_ms"], signal);
    const ages = new Map(found.get("reader_lag_ms").map(({ labels, value }) => [`${labels.topic} ${labels.reader}`, value]));
    const named = found.get("reader_lag").sort((a, b) => b.value - a.value);
    const readers = shownOf(named, named.length < 1000 ? "" : "Listed are 1,000 readers. A topic's page lists all of its own. ");
    if (readers.length) {
      set(list, table("Named readers", columns, readers.map(({ labels: { topic, reader }, value }) => row(columns, [
        h("span.name", {}, reader), linkTo(topic, "/readers"), count(value), value ? span(ages.get(`${topic} ${reader}`) ?? 0) : "·",
      ]))));
    } else {
      set(list, empty("No named readers", "A named reader is a cursor that its topic remembers, with its lag:", command(curl("PUT", "/v0/topics/orders/readers/billing", {}))));
    }
    return waits;
  };
  every(3000, signal, look, failed);
}

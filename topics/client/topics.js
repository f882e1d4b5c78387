// A client of a topics server, for browsers: one module, without packages and without a build.
//
//     import { connect } from "./topics.js";
//
//     const log = connect("http://localhost:4000", { key: "s3cret" });
//     await log.append("orders", [{ sku: 1 }]);
//     for await (const event of log.follow({ orders: { from_seq: 0 } })) {
//       if (event.type === "record") console.log(event.topic, event.record.$seq, event.record.data);
//       if (event.type === "gap") console.warn("lost", event.topic, event.gap_from, event.gap_to, event.reason);
//     }
//
// Seqs are numbers, so they are exact up to 2^53. See docs/guides/client.md.

const DEFAULTS = {
  key: null, // one of the server's keys
  timeoutMs: 30000, // how long a call may take in all, with its repetitions and without the wait_ms that it asks for
  firstPauseMs: 50, // the first pause before a repetition; each one after it is twice as long
  longestPauseMs: 5000,
  heartbeatMs: 15000, // of streams; one that is silent for twice as long is given up, and opened again
};

const DEFAULT_WINDOW_MS = 120000; // of a topic that a write creates
const FOLLOWED = ["record", "tombstone", "caught-up"]; // events of a topic that is there
const SETTLING = [400, 413, 422]; // statuses of refusals that an append which was done would not get

/** An error that a server answered (`code`, `detail` and `status` are set), or the lack of an answer. */
export class TopicsError extends Error {
  constructor(code, message, detail = null, status = 0) {
    super(message);
    this.name = "TopicsError";
    this.code = code;
    this.detail = detail;
    this.status = status;
  }
}

/** Return the client of a server. `options`: those of DEFAULTS. */
export function connect(url, options = {}) {
  for (const name of Object.keys(options)) {
    if (!(name in DEFAULTS)) throw new TypeError(`connect has no option ${name}: use one of ${Object.keys(DEFAULTS)}`);
  }
  if (!/^https?:\/\/[^/\s]/i.test(url) || !URL.canParse(url)) {
    throw new TypeError(`url is ${JSON.stringify(url)}: use the address of a server, as "http://localhost:4000"`);
  }
  return new Client(String(url).replace(/\/+$/, ""), { ...DEFAULTS, ...options });
}

class Client {
  constructor(url, options) {
    this.url = url;
    this.options = options;
  }

  /**
   * Append values, all or none. Sent again until it is answered, by one idempotency key, so it is done once.
   * `fields`: others of the body, such as `idempotency_key`, `node` or `create`.
   */
  append(topic, values, fields = {}) {
    if (!Array.isArray(values)) throw new TypeError("values is no array: give a list of values, also for one");
    const path = `/v0/topics/${encodeURIComponent(topic)}`;
    const records = values.map((data) => ({ data }));
    const body = { records, idempotency_key: crypto.randomUUID(), ...fields };
    return this.call("POST", path, body, { windowMs: (until) => this.windowMs(path, until) });
  }

  /** Return for how long a topic knows the key of an append, 0: its key may not read that. Throws: TopicsError. */
  async windowMs(path, until) {
    try {
      const state = await this.call("GET", `${path}?touch=false`, undefined, { until });
      return state.config.idempotency_window_ms;
    } catch (error) {
      return error.code === "topic_not_found" || error.code === "no_answer" ? DEFAULT_WINDOW_MS : 0;
    }
  }

  /** Return one page of records after `from_seq`, its tombstone, and `next_from_seq`: see 7.6 of the contract. */
  read(topic, fields = {}) {
    return this.call("POST", `/v0/topics/${encodeURIComponent(topic)}/diff`, { from_seq: 0, ...fields });
  }

  /**
   * Send a request that may be repeated, and return its answer. `windowMs`: returns for how long a repetition does not
   * do it twice. `until`: when to give it up (Unix ms).
   * Throws: TopicsError, `outcome_unknown` where it may be done; the signal's reason.
   */
  async call(method, path, body, { signal, windowMs, until } = {}) {
    const began = Date.now();
    let inDoubt = false;
    until ??= began + this.options.timeoutMs + (body?.wait_ms ?? 0);
    for (let pauses = 0; ; pauses++) {
      const left = AbortSignal.timeout(Math.max(1, until - Date.now()));
      let error;
      try {
        const answer = await this.send(method, path, body, {}, signal ? AbortSignal.any([signal, left]) : left);
        return await answer.json();
      } catch (failure) {
        signal?.throwIfAborted();
        error = failure;
      }
      const isAnswer = error instanceof TopicsError && error.code !== "no_answer";
      if (isAnswer && !mayPass(error)) throw inDoubt && !SETTLING.includes(error.status) ? unknown(error.message) : error;
      if (windowMs && !isAnswer) {
        inDoubt = true;
        until = Math.min(until, began + (await windowMs(until)) / 2); // each time: topics change
      }
      const pause = Math.max(this.pauseMs(pauses), error.detail?.retry_after_ms ?? 0);
      if (Date.now() + pause >= until) {
        if (isAnswer) throw inDoubt ? unknown(error.message) : error;
        const why = `no answer from ${this.url}: ${error.message}${this.originToList()}`;
        throw inDoubt ? unknown(why) : new TopicsError("no_answer", why);
      }
      await sleep(pause, signal);
    }
  }

  /** Return a question about the page's origin, which a server of another origin has to list, or "". */
  originToList() {
    const page = globalThis.location;
    if (!page || new URL(this.url, page.href).origin === page.origin) return "";
    return ` (is ${page.origin} in TOPICS_ALLOWED_ORIGINS of the server?)`;
  }

  /** Send a request once. Throws: TopicsError for a refusal, TypeError without an answer. */
  async send(method, path, body, headers, signal) {
    const all = { Prefer: "handling=strict", ...headers };
    if (body !== undefined) all["Content-Type"] = "application/json";
    if (this.options.key !== null) all.Authorization = `Bearer ${this.options.key}`;
    const init = { method, headers: all, body: JSON.stringify(body), signal, cache: "no-store" };
    const answer = await fetch(this.url + path, init);
    if (answer.ok) return answer;
    const text = await answer.text();
    let error;
    try {
      error = JSON.parse(text).error;
    } catch {
      error = { code: "no_answer", message: `${this.url} answered ${answer.status}, which no topics server does` };
    }
    throw new TopicsError(error.code, error.message, error.detail ?? null, answer.status);
  }

  /**
   * Follow topics: `{ name: { from_seq }, other: { from: "now" } }`. Continues after lost connections and restarts.
   *
   * Yields `{ type: "record", topic, record }`; `{ type: "gap", topic, gap_from, gap_to, reason }` where records were
   * lost; `{ type: "caught-up", topic, head_seq }`; `{ type: "topic-deleted", topic }`. Ends with the last topic, or
   * by `signal`. `fields`: others of a session, such as `node` or `include_tags`. `prefixes: { "orders.": {} }`: also
   * all topics whose names begin so, those made later from their first record on; it ends only by `signal` then, and
   * yields `{ type: "left-out", topic, max }` for one of the topics that are too many.
   */
  async *follow(topics, { signal, ...fields } = {}) {
    const session = { heartbeat_ms: this.options.heartbeatMs, ...fields };
    let cursors = topics;
    let lives = {}; // incarnations of the topics of the session before: a seq of another one is another record
    let lenient = ""; // topics that are absent at the beginning are an error, and deleted ones later
    while (Object.keys(cursors).length || session.prefixes) {
      for (const [topic, life] of Object.entries(await this.livesOf(Object.keys(lives), signal))) {
        if (life === lives[topic] || !(topic in cursors)) continue;
        const past = { ...cursors[topic], incarnation: lives[topic], limit: 1, max_batch_bytes: 1 };
        const path = `/v0/topics/${encodeURIComponent(topic)}/diff`;
        const { tombstone } = await this.call("POST", path, past, { signal }).catch(absent);
        if (tombstone) yield* taken({ event: "tombstone", data: { topic, ...tombstone } }, cursors);
      }
      const made = await this.call("POST", `/v0/watch${lenient}`, { ...session, topics: cursors }, { signal });
      for (const topic of Object.keys(cursors)) {
        if (!(topic in made.topics)) yield { type: "topic-deleted", topic };
      }
      lenient = "?lenient=true";
      const at = Object.fromEntries(Object.entries(made.topics).map(([topic, { from_seq }]) => [topic, { from_seq }]));
      // What is made while there is no session is not known yet: it begins with its first record.
      if (session.prefixes) session.prefixes = Object.fromEntries(Object.keys(session.prefixes).map((each) => [each, {}]));
      lives = await this.livesOf(Object.keys(at), signal);
      yield* this.events(made.stream_url, at, lives, signal, Boolean(session.prefixes));
      cursors = at;
    }
  }

  /** Return the incarnations of those topics that exist, by name. */
  async livesOf(names, signal) {
    const found = {};
    for (let at = 0; at < names.length; at += 256) {
      const asked = Object.fromEntries(names.slice(at, at + 256).map((name) => [name, null]));
      const { topics } = await this.call("POST", "/v0/wait", { topics: asked, wait_ms: 0 }, { signal });
      for (const [name, head] of Object.entries(topics)) if (head) found[name] = head.incarnation;
    }
    return found;
  }

  /**
   * Yield the events of a session until it is gone, or a topic is another one after a lost connection. Keeps the
   * cursors of its topics in `at`, and their incarnations in `lives`.
   */
  async *events(path, at, lives, signal, stays = false) {
    let last = null; // the id of the last event
    let isLost = false; // whether there was a connection before
    for (let pauses = 0; stays || Object.keys(at).length; ) {
      const silence = new AbortController();
      let timer;
      const wake = () => {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), 2 * this.options.heartbeatMs);
      };
      try {
        if (isLost) {
          const found = await this.livesOf(Object.keys(lives), signal);
          if (Object.entries(found).some(([topic, life]) => life !== lives[topic])) return;
        }
        isLost = true;
        wake();
        const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": last }) };
        const either = signal ? AbortSignal.any([signal, silence.signal]) : silence.signal;
        const answer = await this.send("GET", path, undefined, headers, either);
        for await (const event of framesOf(answer.body, wake)) {
          pauses = 0;
          const { topic, gap_from: from } = event.data;
          if (from === 1 || event.event === "topic-deleted") delete lives[topic]; // perhaps another one from here on
          const isNew = topic !== undefined && !(topic in lives) && FOLLOWED.includes(event.event);
          if (isNew) Object.assign(lives, await this.livesOf([topic], signal)); // before its event counts as seen
          last = event.id ?? last;
          yield* taken(event, at);
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof TopicsError && error.status === 404) return; // the server has forgotten it
        if (error instanceof TopicsError && !mayPass(error)) throw error;
      } finally {
        clearTimeout(timer);
        silence.abort();
      }
      if (stays || Object.keys(at).length) await sleep(this.pauseMs(pauses++), signal);
    }
  }

  pauseMs(pauses) {
    const pause = Math.min(this.options.firstPauseMs * 2 ** pauses, this.options.longestPauseMs);
    return pause * (0.5 + Math.random() / 2);
  }
}

/** Return the error of a request that may be done, or not. */
function unknown(why) {
  return new TopicsError("outcome_unknown", `${why}, and there is no time to send it again: it may be done, or not`);
}

/** Whether the same request may succeed later. */
function mayPass(error) {
  return error.status === 503 || (error.status === 429 && !error.detail?.limit) || error.code === "no_answer";
}

/** Take an absent topic for an answer without members. */
function absent(error) {
  if (error.code !== "topic_not_found") throw error;
  return {};
}

/** Yield what one event of a stream says, and move the cursor of its topic. */
function* taken({ event, data }, at) {
  if (event === "record") {
    for (const record of data.records) yield { type: "record", topic: data.topic, record };
    at[data.topic] = { from_seq: data.to_seq };
  } else if (event === "tombstone") {
    const { topic, reason, gap_from, gap_to, earliest_seq } = data;
    yield { type: "gap", topic, reason, gap_from, gap_to };
    // The first tombstone of a connection has the reason from_seq_too_old, also of a topic that was made again.
    at[topic] = { from_seq: gap_from === 1 ? Math.min(gap_to, earliest_seq - 1) : gap_to };
  } else if (event === "caught-up") {
    yield { type: "caught-up", topic: data.topic, head_seq: data.head_seq };
  } else if (event === "topic-deleted") {
    delete at[data.topic];
    yield { type: "topic-deleted", topic: data.topic };
  } else if (event === "left-out") {
    yield { type: "left-out", topic: data.topic, max: data.max };
  }
}

/** Yield the frames of a stream of server-sent events; `wake` is called for all that arrives. */
async function* framesOf(body, wake) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      wake();
      const frames = (text + value).split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        if (fields.event) yield { id: fields.id, event: fields.event, data: JSON.parse(fields.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone
  }
}

/** Wait. Throws: the signal's reason. */
function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, ms);
    function done() {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }
    function aborted() {
      clearTimeout(timer);
      reject(signal.reason);
    }
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
}

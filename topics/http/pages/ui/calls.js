"use strict";
// Requests to the server, with the key of this tab; streams of events; polling while the page is visible.

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The key: kept for the tab, and asked for once the server refuses a request. */
const keys = {
  asked: document.documentElement.dataset.keys === "yes",
  inMemory: "",
  asking: null,
  get value() {
    try {
      return sessionStorage.getItem("topics.key") ?? this.inMemory;
    } catch {
      return this.inMemory;
    }
  },
  set value(key) {
    this.inMemory = key;
    try {
      if (key) sessionStorage.setItem("topics.key", key);
      else sessionStorage.removeItem("topics.key");
    } catch {
      // The browser keeps nothing for this page: the key lasts until it is loaded again.
    }
  },
  /** Ask for a key, once for all who need one. Return whether there is one now. */
  ask(about) {
    this.asking ??= this.enter(about).finally(() => (this.asking = null));
    return this.asking;
  },
  async enter(about) {
    const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Key", autofocus: true });
    const content = [h("p", {}, about), input, h("p.hint", {}, "It stays in this tab and is sent to this server only.")];
    const buttons = [
      h("button.quiet", { value: "" }, "Cancel"),
      h("button.primary", { value: "use" }, "Use this key"),
    ];
    // Enter presses the first button of a form, which is the one that is meant.
    const pressed = await dialog("This server asks for a key", content, buttons.reverse());
    if (pressed !== "use" || !input.value.trim()) return false;
    this.value = input.value.trim();
    return true;
  },
};

/** Header values are bytes: a key of other letters is sent as UTF-8. */
const latin1 = (text) => String.fromCharCode(...new TextEncoder().encode(text));

function headers(more = {}) {
  return keys.asked && keys.value ? { Authorization: `Bearer ${latin1(keys.value)}`, ...more } : more;
}

/** Send a request, and once more with another key if that was refused. Throws Refused. */
async function send(method, path, body, { signal, accept } = {}) {
  for (;;) {
    if (keys.asked && !keys.value && !(await keys.ask("Enter one that may read topics."))) {
      throw new Refused(401, "unauthorized", "Without a key the server shows nothing. Press Key to enter one.");
    }
    const used = keys.value;
    const sent = { method, signal, cache: "no-store", credentials: "omit", redirect: "error" };
    sent.headers = headers(accept ? { Accept: accept } : {});
    if (body !== undefined) {
      sent.headers["Content-Type"] = "application/json";
      sent.body = typeof body === "string" ? body : JSON.stringify(body);
    }
    let answer;
    try {
      answer = await fetch(path, sent);
    } catch (error) {
      if (signal?.aborted) throw error;
      connection(false);
      throw new Refused(0, "no_answer", "The server does not answer.");
    }
    connection(true);
    if (answer.ok) return answer;
    if (answer.status === 401 && keys.asked) {
      if (keys.value === used) keys.value = "";
      if (keys.value || (await keys.ask("The key was refused. Enter another one."))) continue;
    }
    const { error } = await answer.json().catch(() => ({ error: null }));
    throw new Refused(answer.status, error?.code ?? "unknown", error?.message ?? `Status ${answer.status}`);
  }
}

/** Send a request. Return its JSON. */
async function call(method, path, body = undefined, options = {}) {
  return parse(await (await send(method, path, body, options)).text());
}

const get = (path, signal) => call("GET", path, undefined, { signal });
const ofTopic = (name, rest = "") => `/v0/topics/${encodeURIComponent(name)}${rest}`;

/** Yield the events of a stream, { event, data, id }, until it ends. */
async function* events(path, signal) {
  const answer = await send("GET", path, undefined, { signal, accept: "text/event-stream" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const found = { event: "", data: "", id: "" };
        for (const line of frame.split("\n")) {
          const at = line.indexOf(": ");
          if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
        }
        if (found.event) yield { ...found, data: parse(found.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Return after a time, or when the signal is aborted. */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Return once the page is visible, or the signal is aborted. */
function shown(signal) {
  if (document.visibilityState === "visible") return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState !== "visible" && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}

/**
 * Do something again and again while the page is visible, until the signal is aborted.
 * job: returns how many ms to wait, or nothing for `ms`. A failure is shown by `failed`, and tried again later.
 */
async function every(ms, signal, job, failed) {
  let waits = ms;
  while (!signal.aborted) {
    await shown(signal);
    if (signal.aborted) return;
    try {
      waits = (await job()) ?? ms;
      failed(null);
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
      if (error.status === 401) return;
      waits = Math.min(Math.max(waits, 1000) * 2, 30000);
    }
    await pause(waits, signal);
  }
}

let _answers = true;
/** Note whether the server answered; the head of the page says so. */
function connection(answers) {
  if (answers === _answers && document.getElementById("state").textContent) return;
  _answers = answers;
  const state = document.getElementById("state");
  state.className = answers ? "good" : "bad";
  state.textContent = answers ? "connected" : "no answer";
}

/** Return an element that shows failures, and the function that sets it. */
function failures() {
  const box = h("div.failure", { role: "alert", hidden: true });
  return [box, (error) => {
    box.hidden = !error;
    if (error) say(box, error.message);
  }];
}

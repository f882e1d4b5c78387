"use strict";
// Numbers, times and values as people read them.

const _whole = new Intl.NumberFormat("en");
const _few = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const _short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const count = (n) => _whole.format(n);
const brief = (n) => (Math.abs(n) < 10000 ? _few.format(n) : _short.format(n));

function bytes(n) {
  let at = 0;
  for (; n >= 1024 && at < 5; at += 1) n /= 1024;
  return `${_few.format(n)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][at]}`;
}

/** Return a duration; ms: milliseconds. */
function span(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${_few.format(ms)} ms`;
  const s = ms / 1000;
  if (s < 120) return `${_few.format(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

/** Return a setting in milliseconds as a duration that is exact. */
function exact(ms) {
  for (const [size, name] of [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${name}`;
  }
  return `${count(ms)} ms`;
}

const ago = (ts) => (ts === null ? "never" : `${span(Math.max(0, Date.now() - ts))} ago`);

/** Return the time of day, after the date if that is another day. */
function clock(ts) {
  const at = new Date(ts);
  const two = (n, width = 2) => String(n).padStart(width, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

const many = (n, one, several = `${one}s`) => `${count(n)} ${n === 1 ? one : several}`;

/** Return a text with characters that are invisible, or turn the direction of a line, as escapes. */
function visible(text) {
  const hidden = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  return text.replace(hidden, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Return JSON as a value, whose numbers of 16 characters and more keep their digits where the browser can. */
function parse(text) {
  const digits = (_key, value, context) => {
    const source = typeof value === "number" && context?.source;
    const same = !source || (source.length < 16 && isFinite(value)) || String(value) === source || !JSON.rawJSON;
    return same ? value : JSON.rawJSON(source);
  };
  return JSON.parse(text, digits);
}

/** Return a value as JSON; indent: spaces, 0 for one line. */
const json = (value, indent = 0) => visible(JSON.stringify(value, null, indent));

/** Return how many bytes a text of base64 stands for. */
const unpacked = (text) => (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);

/** Return a word of a shell, quoted where it has to be. */
const quoted = (text) => (/^[\w./:=@,+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** Return the `curl` command of a request to this server. */
function curl(method, path, body = undefined) {
  const parts = ["curl", "-w", "'\\n'"];
  if (method !== (body === undefined ? "GET" : "POST")) parts.push("-X", method);
  parts.push(quoted(location.origin + path));
  if (keys.asked) parts.push('-H "Authorization: Bearer $KEY"');
  if (body !== undefined) {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    parts.push("-H 'Content-Type: application/json'", "-d", `'${text.replaceAll("'", `'\\''`)}'`);
  }
  return parts.join(" ");
}

"use strict";
// Is it well, how busy is it, and how much is in it.

/** Return the numbers of some families of /v0/metrics, by name, and how long to wait for the next ones. */
async function metrics(wanted, signal) {
  const text = await (await send("GET", "/v0/metrics", undefined, { signal })).text();
  const found = new Map(wanted.map((name) => [name, []]));
  for (const line of text.split("\n")) {
    const name = line.slice(7, line.search(/[{ ]/));
    if (!line.startsWith("topics_") || !found.has(name)) continue;
    const labels = {};
    for (const [, key, value] of line.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    found.get(name).push({ labels, value: Number(line.slice(line.lastIndexOf(" ") + 1)) });
  }
  // A page of 1,000 topics costs the server 30 ms, and 100 on an old core, so it is asked for every 26 s, and a short
  // one every 2 s.
  return [found, Math.max(2000, text.length / 10)];
}

const OF_TEXT = ["pressure", "disk_full", "checkpoint_failing", "cold_failed", "checksum_failures_total",
  "http_requests_total", "reader_lag", "reader_lag_ms", "archive_mirror_lag_ms"];

async function showOverview(main, _args, signal) {
  const [failure, failed] = failures();
  const verdict = h("section.verdict", { "aria-live": "polite" }, h("p.hint", {}, "Looking …"));
  const tiles = h("dl.tiles");
  const perSecond = (n) => `${brief(n)}/s`;
  const charts = Object.fromEntries([
    ["frames", "Frames logged", perSecond, "appends and changes of topics, per second"],
    ["written", "Bytes logged", (n) => `${bytes(n)}/s`, "written to the log, per second"],
    ["sync", "Time of a sync", (ms) => (ms ? span(ms) : "none"), "mean since the point before"],
    ["depth", "Waiting for a commit", count, "appends that are not committed yet"],
    ["requests", "Requests", perSecond, "handled, by whichever path"],
    ["pressure", "Pressure", (n) => `${_few.format(n * 100)} %`, "how far deliveries lag: from 20 % on frames gather, from 95 % on writes may be refused", 1],
  ].map(([name, title, show, about, least]) => [name, chart(title, series(name), show, { about, least })]));
  set(main, h("div.title", {}, h("h1", {}, "Overview")), failure, verdict, tiles,
    h("div.charts", {}, Object.values(charts).map(({ element }) => element)));
  let before = null;
  let beforeText = null;
  let newest = null;
  let families = null;

  function judge() {
    const one = (name) => families?.get(name)[0]?.value ?? 0;
    const said = [];
    if (!newest.ready && newest.replay_progress < 1) said.push(["warn", `The log is being recovered: ${Math.round(newest.replay_progress * 100)} %.`]);
    if (newest.wal.read_only) said.push(["bad", "A write or a sync failed: the log takes no writes until a restart."]);
    if (one("disk_full")) said.push(["bad", "The disk is full: appends are refused, reads and deletes continue."]);
    if (one("checksum_failures_total")) said.push(["bad", `${many(one("checksum_failures_total"), "read")} found damaged bytes: run topics fsck.`]);
    if (one("checkpoint_failing")) said.push(["warn", "The newest checkpoint failed: the log grows until one succeeds."]);
    if (one("cold_failed")) said.push(["warn", "The cold directory failed."]);
    if (one("pressure") > 0.5) said.push(["warn", `Under pressure (${Math.round(one("pressure") * 100)} %): deliveries lag.`]);
    const late = new Map((families?.get("reader_lag_ms") ?? []).map(({ labels, value }) => [`${labels.topic}/${labels.reader}`, value]));
    const lags = (families?.get("reader_lag") ?? []).filter(({ value }) => value > 0).sort((a, b) => b.value - a.value);
    for (const { labels, value } of lags.slice(0, 3)) {
      const age = late.get(`${labels.topic}/${labels.reader}`) ?? 0;
      said.push([age > 60000 ? "warn" : "good", ["The reader ", h("b", {}, labels.reader), " of ", linkTo(labels.topic, "/readers"), ` lags by ${many(value, "record")}, the oldest of ${span(age)} ago.`]]);
    }
    const mirrors = [...(families?.get("archive_mirror_lag_ms") ?? [])].sort((a, b) => b.value - a.value);
    for (const { labels, value } of mirrors.slice(0, 3)) {
      said.push([value > 60000 ? "warn" : "good", ["The mirror ", h("b", {}, labels.mirror), ` is ${span(value)} late.`]]);
    }
    if (!said.some(([kind]) => kind !== "good")) said.unshift(["good", h("strong", {}, "All is well: the server takes requests, and nothing failed.")]);
    set(verdict, h("ul", {}, said.map(([kind, text]) => h(`li.${kind}`, {}, text))));
  }

  async function look() {
    newest = await call("GET", "/v0/metrics", undefined, { signal, accept: "application/json" });
    const at = performance.now();
    if (before) {
      const s = (at - before.at) / 1000;
      const grown = (name) => Math.max(0, newest.wal[name] - before.wal[name]);
      series("frames").add(grown("frames") / s);
      series("written").add(grown("bytes_written") / s);
      series("sync").add(grown("fsyncs") ? grown("fsync_micros_total") / grown("fsyncs") / 1000 : 0);
      series("depth").add(newest.wal.queue_depth);
      for (const name of ["frames", "written", "sync", "depth"]) charts[name].draw();
    }
    before = { at, wal: newest.wal };
    const shown = [["topics", newest.topics, "#/topics"], ["records", newest.records_live], ["bytes", newest.bytes_live, "", bytes],
      ["queues", newest.queue_topics, "#/queues"], ["routers", newest.routers, "#/routers"], ["open streams", newest.sse_connections],
      ["up for", newest.uptime_ms, "", span]];
    set(tiles, shown.map(([name, n, to, show = brief]) => h("div", {}, h("dt", {}, to ? h("a", { href: to }, name) : name), h("dd", { title: count(n) }, show(n)))));
    judge();
  }

  async function lookCloser() {
    const [found, waits] = await metrics(OF_TEXT, signal);
    families = found;
    const at = performance.now();
    const requests = found.get("http_requests_total")[0]?.value ?? 0;
    if (beforeText) series("requests").add((Math.max(0, requests - beforeText.requests) / (at - beforeText.at)) * 1000);
    beforeText = { at, requests };
    series("pressure").add(found.get("pressure")[0]?.value ?? 0);
    charts.requests.draw();
    charts.pressure.draw();
    if (newest) judge();
    return waits;
  }

  every(2000, signal, look, failed);
  every(2000, signal, lookCloser, failed);
}

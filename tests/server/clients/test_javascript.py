"""The client for browsers, run by node: `fetch` and its streams are the same there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import topics
from tests.contract.world.live_world import LiveWorld, lasting_port

CLIENT = Path(__file__).resolve().parents[3] / "topics/client/topics.js"
_SECONDS = 60
HEAD = """
import { readSync } from "node:fs";
import { connect } from "CLIENT";
const log = connect("URL", { firstPauseMs: 5, longestPauseMs: 50 });
const ask = (text) => { console.log(text); readSync(0, Buffer.alloc(1)); };
"""


def node() -> str:
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout if found else ""
    if found is None or int(version[1:].split(".")[0]) < 20:
        pytest.skip("the client for browsers is run by node 20 or newer, which is not here")
    return found


class Script:
    """A module that runs in node. `ask` in it prints a line, and waits for `go_on`."""

    def __init__(self, directory: Path, url: str, text: str) -> None:
        path = directory / "script.mjs"
        path.write_text(HEAD.replace("CLIENT", CLIENT.as_uri()).replace("URL", url) + text)
        self._process = subprocess.Popen(
            [node(), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def rest(self) -> list[str]:
        """Return the lines that it prints up to its end."""
        out, _ = self._process.communicate(timeout=_SECONDS)
        return out.splitlines()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def killable(tmp_path: Path, text: str, **settings: int) -> Iterator[tuple[Script, str, Callable[[], None]]]:
    """Yield a script beside a server, the server's URL, and a call that kills the server and starts it again."""
    world, port = LiveWorld(tmp_path, **settings), lasting_port()

    def restart() -> None:
        world.crash()
        world.start(port=port)

    world.start(port=port)
    script = Script(tmp_path, url(world), text)
    try:
        yield script, url(world), restart
    finally:
        script.close()
        world.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveWorld]:
    world = LiveWorld(tmp_path)
    world.start()
    yield world
    world.close()


def url(world: LiveWorld) -> str:
    host, port = world.address
    return f"http://{host}:{port}"


def run(world: LiveWorld, directory: Path, text: str) -> list[str]:
    return Script(directory, url(world), text).rest()


def test_records_are_written_and_read(world: LiveWorld, tmp_path: Path) -> None:
    found = run(
        world,
        tmp_path,
        """
        console.log((await log.append("orders", [{ sku: 1 }, { sku: 2 }])).seqs.join());
        const page = await log.read("orders", { limit: 1 });
        console.log(JSON.stringify(page.records.map((record) => record.data)), page.next_from_seq);
        """,
    )
    assert found == ["1,2", '[{"sku":1}] 1']


def test_a_refusal_is_an_error_with_the_servers_code(world: LiveWorld, tmp_path: Path) -> None:
    found = run(
        world,
        tmp_path,
        """
        const shown = (error) => console.log(error.name, error.code, error.status, error.message);
        await log.read("absent").catch(shown);
        await log.append("orders", [1], { crate: false }).catch(shown);
        try { connect("http://localhost", { timeoutMS: 1 }); } catch (error) { shown(error); }
        for (const url of ["foo", "localhost:4000", "http://", "http://a b"]) {
          try { connect(url); } catch (error) { shown(error); }
        }
        try { log.append("orders", "abc"); } catch (error) { shown(error); }
        """,
    )
    assert found[0].startswith("TopicsError topic_not_found 404")
    assert found[1].startswith("TopicsError invalid_request 400")
    assert "crate" in found[1]
    assert found[2].startswith("TypeError")
    assert [line.partition(" is ")[0].split()[-1] for line in found[3:]] == [*["url"] * 4, "values"]


def test_a_stream_continues_across_a_killed_server_and_tells_gaps(tmp_path: Path) -> None:
    source = """
    await log.append("ticks", [1, 2]);
    for await (const event of log.follow({ ticks: { from_seq: 0 } })) {
      if (event.type === "record") console.log("record", event.record.$seq, event.record.data);
      if (event.type === "gap") console.log("gap", event.gap_from, event.gap_to, event.reason);
      if (event.type === "caught-up" && event.head_seq === 2) ask("caught up");
      if (event.type === "topic-deleted") console.log("deleted");
    }
    """
    with killable(tmp_path, source) as (script, at, restart):
        assert [script.line() for _ in range(3)] == ["record 1 1", "record 2 2", "caught up"]
        restart()
        with topics.connect(at) as log:
            log.patch_topic("ticks", cap_records=2)
            log.append("ticks", [3, 4, 5])
        script.go_on()
        assert [script.line() for _ in range(3)] == ["gap 3 3 from_seq_too_old", "record 4 4", "record 5 5"]
        with topics.connect(at) as log:
            log.delete_topic("ticks")
        assert script.rest() == ["deleted"]


def test_topics_with_a_prefix_are_followed_across_a_killed_server(tmp_path: Path) -> None:
    """R-PREFIX-8: one that is made meanwhile comes from its first record on."""
    source = """
    await log.append("a.1", ["old"]);
    for await (const event of log.follow({}, { prefixes: { "a.": { tail: true } } })) {
      if (event.type === "record") console.log(event.topic, event.record.$seq, event.record.data);
      else if (event.type === "caught-up") { if (event.topic === "a.1") ask("caught up"); }
      else { console.log(event.type, event.topic); if (event.type === "left-out") break; }
    }
    """
    with killable(tmp_path, source, max_watch_topics=2) as (script, at, restart):
        assert script.line() == "caught up"
        restart()
        with topics.connect(at) as log:
            log.append("a.2", ["new"])
        script.go_on()
        seen = [script.line()]
        while seen[-1] == "caught up":
            script.go_on()
            seen.append(script.line())
        assert seen[-1] == "a.2 1 new"
        with topics.connect(at) as log:
            log.delete_topic("a.2")
            log.append("a.0", ["more"])
            log.put_topic("a.3")
        assert script.rest() == ["topic-deleted a.2", "a.0 1 more", "left-out a.3"]


def test_a_page_of_another_origin_is_asked_whether_the_server_lists_it(tmp_path: Path) -> None:
    found = Script(
        tmp_path,
        "http://127.0.0.1:1",
        """
        for (const page of ["http://page:8000", "http://127.0.0.1:1", undefined]) {
          globalThis.location = page && { origin: page, href: `${page}/index.html` };
          const client = connect("http://127.0.0.1:1", { timeoutMs: 1 });
          await client.read("orders").catch((error) => console.log(error.message));
        }
        """,
    ).rest()
    assert [line.partition(" (")[2] for line in found] == [
        "is http://page:8000 in TOPICS_ALLOWED_ORIGINS of the server?)",
        "",
        "",
    ]


def test_an_append_is_not_sent_again_after_half_of_the_window_of_its_topic(world: LiveWorld, tmp_path: Path) -> None:
    """R-IDEM-1: once its key is forgotten, a repetition would append again."""
    with topics.connect(url(world)) as log:
        log.put_topic("brief", idempotency_window_ms=60_000)
    found = run(
        world,
        tmp_path,
        """
        const real = globalThis.fetch;
        let now = Date.now(), posts = 0;
        Date.now = () => now; // the window passes by it, however long a process has no core
        globalThis.fetch = async (address, init) => {
          const answer = await real(address, init);
          if (init.method !== "POST") return answer;
          now += 10_000;
          posts += 1;
          throw new TypeError("the answer was lost");
        };
        const client = connect("URL", { timeoutMs: 3_600_000, firstPauseMs: 5, longestPauseMs: 50 });
        await client.append("brief", [1]).catch((error) => console.log(error.code, error.message));
        console.log(posts);
        """.replace("URL", url(world)),
    )
    assert found[0].startswith("outcome_unknown no answer from ")
    assert found[0].endswith("it may be done, or not")
    assert found[1] == "3"
    with topics.connect(url(world)) as log:
        assert log.state("brief").count == 1


def test_a_read_that_waits_longer_than_a_call_may_take_is_answered(world: LiveWorld, tmp_path: Path) -> None:
    found = run(
        world,
        tmp_path,
        """
        await log.append("quiet", [1]);
        const client = connect("URL", { timeoutMs: 300 });
        const page = client.read("quiet", { from_seq: 1, wait_ms: 30_000 }).catch((error) => error);
        await new Promise((done) => setTimeout(done, 600)); // it has waited for longer than 300 ms then
        await log.append("quiet", [2]);
        const { records, next_from_seq } = await page;
        console.log(records?.length, next_from_seq);
        """.replace("URL", url(world)),
    )
    assert found == ["1 2"]


def test_a_topic_that_was_made_again_while_the_server_was_away_is_a_gap(tmp_path: Path) -> None:
    """Its head has passed the cursor, so the seq does not show that anything was lost."""
    source = """
    await log.append("ticks", ["old", "older"]);
    for await (const event of log.follow({ ticks: { from_seq: 0 } })) {
      if (event.type === "record") console.log("record", event.record.$seq, event.record.data);
      if (event.type === "gap") console.log("gap", event.reason);
      if (event.type === "caught-up" && event.head_seq === 2) ask("caught up");
      if (event.type === "caught-up" && event.head_seq === 3) break;
    }
    """
    with killable(tmp_path, source) as (script, at, restart):
        assert [script.line() for _ in range(3)] == ["record 1 old", "record 2 older", "caught up"]
        restart()
        with topics.connect(at) as log:
            log.delete_topic("ticks")
            log.append("ticks", ["a", "b", "c"])
        script.go_on()
        assert script.rest() == ["gap recreated", "record 1 a", "record 2 b", "record 3 c"]


def test_a_topic_of_a_prefix_that_was_made_again_while_the_server_was_away_is_a_gap(tmp_path: Path) -> None:
    """Also one that was made, and one that was created again, since the session began."""
    source = """
    let asked = 0;
    for await (const event of log.follow({}, { prefixes: { "a.": {} } })) {
      if (event.type === "record") console.log(event.topic, event.record.$seq, event.record.data);
      if (event.type === "gap") console.log("gap", event.topic, event.reason);
      if (event.type === "topic-deleted") console.log("deleted", event.topic);
      if (event.type === "caught-up" && event.head_seq === 2) ask("caught up");
      if (event.type === "caught-up" && event.head_seq === 3) break;
    }
    """
    with killable(tmp_path, source) as (script, at, restart):
        with topics.connect(at) as log:
            log.append("a.1", ["oldest"])
            assert script.line() == "a.1 1 oldest"
            log.delete_topic("a.1")
            assert script.line() == "deleted a.1"
            log.append("a.1", ["old", "older"])
            assert [script.line() for _ in range(3)] == ["a.1 1 old", "a.1 2 older", "caught up"]
        restart()
        with topics.connect(at) as log:
            log.delete_topic("a.1")
            log.append("a.1", ["a", "b", "c"])
        script.go_on()
        assert script.rest() == ["gap a.1 recreated", "a.1 1 a", "a.1 2 b", "a.1 3 c"]


def test_a_topic_that_was_made_again_while_a_connection_was_lost_is_a_gap(world: LiveWorld, tmp_path: Path) -> None:
    source = """
    const real = globalThis.fetch;
    let cut;
    globalThis.fetch = (address, init) => {
      if (init.headers.Accept !== "text/event-stream") return real(address, init);
      cut = new AbortController();
      return real(address, { ...init, signal: AbortSignal.any([init.signal, cut.signal]) });
    };
    await log.append("ticks", ["old", "older"]);
    for await (const event of log.follow({ ticks: { from_seq: 0 } })) {
      if (event.type === "record") console.log("record", event.record.$seq, event.record.data);
      if (event.type === "gap") console.log("gap", event.reason);
      if (event.type === "caught-up" && event.head_seq === 2) {
        cut.abort();
        await log.call("DELETE", "/v0/topics/ticks");
        await log.append("ticks", ["a", "b", "c"]);
      }
      if (event.type === "caught-up" && event.head_seq === 3) break;
    }
    """
    assert run(world, tmp_path, source) == [
        "record 1 old",
        "record 2 older",
        "gap recreated",
        "record 1 a",
        "record 2 b",
        "record 3 c",
    ]

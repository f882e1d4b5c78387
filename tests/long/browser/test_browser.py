"""`/ui` and `/docs` in Chromium, on a server with 1,000 topics and on one with keys. `make ui` runs this.

The screenshots stay in `build/ui`, for eyes: a program sees no ugly page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.cli.commands.command_runs import run
from tests.contract.world.live_world import LiveWorld
from tests.long.browser.filled_server import HOSTILE, MARKUP, MIRRORS, fill, fill_long_lists, follow
from tests.server.clients.test_javascript import node

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "build" / "ui"
MODULES = ROOT / ".venv" / "node"
STEPS = Path(__file__).with_name("browser_steps.mjs")
KEY = "a-key-with-all-rights"
WRITER = "a-key-that-writes"
IDLE_S = 20
IDLE_SHARE_MAX = 0.01
"""The share of a core for one page that is open."""
TAIL_MS_MAX = 1000
_SECONDS = 400
_TICKS = os.sysconf("SC_CLK_TCK")

pytestmark = pytest.mark.slow


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("the pages are looked at in Chromium, which is not here (Debian: apt-get install chromium)")
    if not (MODULES / "node_modules" / "playwright-core").is_dir():
        pytest.skip("Chromium is led by playwright-core, which is not here: `make ui` installs it")
    return found


def cpu_s(world: LiveWorld) -> float:
    assert world.process is not None
    fields = Path(f"/proc/{world.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def restore(directory: Path) -> None:
    """Make the data directory `data` of a backup with three records."""
    source, backup, data = (str(directory / name) for name in ("source", "backup", "data"))
    with topics.open(source) as first:
        first.append("orders", [1, 2, 3])
    for command in (["backup", "--data-dir", source, "--to", backup], ["restore", "--from", backup, "--to", data]):
        ran = run(command, directory)
        assert ran.code == 0, ran


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The findings of the browser, one dictionary for each step; of an idle page also `share` of a core."""
    program, script = chromium(), node()
    directory = tmp_path_factory.mktemp("browser")
    plain, keyed, restored = worlds = (
        LiveWorld(directory / "plain"),
        LiveWorld(directory / "keyed", api_keys=f"{KEY},{WRITER}:w", archive_dir=str(directory / "archive")),
        LiveWorld(directory / "restored"),
    )
    for world in worlds:
        world.directory.mkdir()
    restore(restored.directory)
    for world in worlds:
        world.start()
    try:
        fill(plain)
        fill(keyed, KEY, topics=20)
        follow(keyed, KEY)
        fill_long_lists(restored)
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        given = {
            "modules": str(MODULES / "node_modules"),
            "chromium": program,
            "profile": str(directory / "profile"),
            "out": str(OUT),
            "plain": f"http://127.0.0.1:{plain.address[1]}",
            "keyed": f"http://127.0.0.1:{keyed.address[1]}",
            "restored": f"http://127.0.0.1:{restored.address[1]}",
            "key": KEY,
            "writer": WRITER,
            "idle_s": IDLE_S,
        }
        command = ["timeout", str(_SECONDS), script, str(STEPS), json.dumps(given)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found: list[dict[str, Any]] = []
            began = 0.0
            for line in process.stdout:
                found.append(json.loads(line))
                if found[-1]["step"] == "idle":
                    began = cpu_s(plain)
                elif found[-1]["step"] == "idle over":
                    found[-1]["share"] = (cpu_s(plain) - began) / IDLE_S
        assert process.returncode == 0, found[-1:]
        yield found
    finally:
        for world in worlds:
            world.close()


def only(steps: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (step for step in steps if step["step"] == name)
    return found


def test_no_page_writes_to_the_console_or_is_wider_than_its_window(steps: list[dict[str, Any]]) -> None:
    views = [step for step in steps if step["step"] == "view"]
    assert len(views) == 17 * 4
    assert [step for step in steps if step.get("noted")] == []
    assert [(step["name"], step["size"]) for step in views if step["wide"] > 0] == []


def test_lists_the_graph_and_the_charts_show_what_the_server_has(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "lists")
    assert sorted(found["boxes"]) == ["audit", "orders", "orders-eu", "orders-us"]
    edges = sorted(edge.partition(",")[0] for edge in found["edges"])
    assert edges == [f"{router}: 300 forwarded" for router in ("audit", "orders-eu", "orders-us")]
    assert found["jobs"] == found["queue"]
    assert found["queue"][3:] == ["0", "6", "jobs.dead"]
    (billing,) = (reader for reader in found["readers"] if reader["reader"] == "billing")
    assert found["reader"][:3] == ["billing", "orders", str(billing["lag_records"])]
    assert [title.split("\n")[0] for title in found["charts"]] == [
        "Frames logged", "Bytes logged", "Time of a sync", "Waiting for a commit", "Requests", "Pressure",
    ]  # fmt: skip
    state, (name, durability, count, size, rate, head) = found["state"], found["topic"]
    assert (name, durability, count, rate, head) == (
        "orders",
        "fsync",
        str(state["count"]),
        "·",
        str(state["head_seq"]),
    )
    assert size


def test_the_tail_shows_a_record_within_a_second_and_a_gap_as_a_row(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "tail")
    print(f"a record shows after {[round(ms) for ms in found['took_ms']]} ms")
    assert max(found["took_ms"]) < TAIL_MS_MAX
    assert found["older"] > 0
    assert "cap" in found["gap"]


def test_older_records_lead_over_the_gap_of_a_restore(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "restored")
    *_, gap, third, second, first = found["rows"]
    assert gap.split() == ["Seqs", "4", "to", "1,048,579", "lost", "in", "a", "crash", "crash"]
    assert [row.split()[0] for row in (third, second, first)] == ["3", "2", "1"]
    assert (found["count"], found["ends"]) == (103, True)


def test_what_a_list_leaves_out_is_said_and_shown_on_request(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "cut")
    assert "Listed are the queues among the first 1,000 topics: 0 of 1." in found["queues"]
    assert "No queues" not in found["queues"]
    assert found["found"]["readers"] == ["200 of 250 are shown.", 200, 250]
    assert found["found"]["routers"] == ["400 of 450 are shown.", 400, 450]


def test_an_address_that_is_no_utf8_shows_its_view(steps: list[dict[str, Any]]) -> None:
    assert only(steps, "address")["title"] == "100%"


def test_a_key_that_may_only_write_publishes(steps: list[dict[str, Any]]) -> None:
    assert only(steps, "writer")["answer"].startswith("seq ")


def test_what_is_published_is_written_as_it_was_typed(steps: list[dict[str, Any]]) -> None:
    assert '"$tag":"typed","data":{"big":9007199254740993}' in only(steps, "publish")["read"]


def test_a_change_of_the_configuration_does_what_was_said(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "config")
    assert "Evicts the 150 oldest records of 200 at once" in found["effects"]
    assert found["count"] == 50


def test_dead_letters_are_redriven(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "redrive")
    assert (found["before"], found["left"]) == (6, 0)


def test_names_and_payloads_of_markup_stay_text(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "hostile")
    records, jobs, absent, _ = found["texts"]
    assert MARKUP in records
    assert HOSTILE[0]["tag"] in records
    assert HOSTILE[0]["node"] in records
    assert "\\u202egnp.exe" in records
    assert "9007199254740993" in records
    assert MARKUP in jobs
    assert "<img src=x onerror=alert(1)>" in absent
    assert found["made"] == 0
    assert "broken" not in found["title"]


def test_a_form_of_the_docs_sends_its_request(steps: list[dict[str, Any]]) -> None:
    answer = only(steps, "docs")["answer"]
    assert only(steps, "docs")["calls_here"], "its example calls this server"
    assert answer.startswith("200\n{")
    assert MARKUP in answer


def test_the_docs_of_a_server_with_keys_open_and_send_the_key_that_is_entered(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "docs with keys")
    assert (found["answers"], found["asks"], found["title"]) == (["401", "200"], 0, "Queues: hand out jobs with leases")


def test_the_keyboard_leads_to_every_part(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "keyboard")
    assert (found["skip"], found["main"], found["name"]) == ("Skip to the content", "main", "svc-07.events.0407")


def test_a_key_is_asked_for_once_a_tab_and_sent_in_no_address(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "keys")
    assert (found["before"], found["again"], found["secrets"]) == ([], 0, [])


def test_mirrors_are_shown_by_their_names_whatever_these_are(steps: list[dict[str, Any]]) -> None:
    found = only(steps, "keys")
    assert (sorted(found["mirrors"]), found["wide"]) == (sorted(MIRRORS), 0)


def test_an_idle_page_costs_the_server_under_one_percent_of_a_core(steps: list[dict[str, Any]]) -> None:
    shares = {step["name"]: step["share"] for step in steps if step["step"] == "idle over"}
    print("an idle page costs " + ", ".join(f"{name} {share:.2%}" for name, share in shares.items()))
    assert shares.keys() == {"overview", "topics"}
    assert max(shares.values()) < IDLE_SHARE_MAX

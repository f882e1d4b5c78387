"""Directories of every format open for ever, and hold what they held."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimRing
from tests.store.golden import make, make_second, make_third, make_ttls
from tests.store.store_world import DIRECTORY, StoreWorld
from topics.loop import Loop
from topics.store.disk.directory_format import Marker
from topics.store.format.compressed_segment import is_compressed
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify

GOLDEN = Path(__file__).parent.parent / "golden"
TOPIC = "topics/0000000000000001"


def lay_down(ring: SimRing, golden: Path, to: str) -> None:
    for path in sorted(golden.rglob("*")):
        if path.is_file():
            ring.put_file(f"{to}/{path.relative_to(golden)}", path.read_bytes())


def first() -> SimRing:
    ring = SimRing(9)
    lay_down(ring, GOLDEN / "v1", DIRECTORY)
    return ring


def wanted(version: str) -> dict[str, dict[str, list[object]]]:
    found: dict[str, dict[str, list[object]]] = json.loads((GOLDEN / f"{version}-expected.json").read_text())
    return found


def format_in(data: bytes) -> int:
    return msgspec.json.decode(data, type=Marker).format


def refused_by_a_build_of_the_first_format(marker: Marker, path: str, *, cores: int = 1) -> str:
    """`refused_marker` of the last build that had no second format, with its constant in it."""
    if marker.format != 1:
        return f"{path}: format {marker.format}; this build knows {1}"
    if marker.cores != cores:
        return f"{path}: made for {marker.cores} cores, and this version runs {cores}: use the one that made it"
    return ""


def refused_by_a_build_of_the_second_format(marker: Marker, path: str) -> str:
    """`refused_marker` of the last build that had no third format, with its constants in it."""
    known = range(1, 3)
    return "" if marker.format in known else f"{path}: format {marker.format}; this build knows 1 to 2"


def test_a_directory_of_the_first_format_opens_and_goes_on() -> None:
    ring = first()
    loop = Loop(ring, ring.clock)
    assert loop.run_task(verify(loop, DIRECTORY)).findings == []
    world = StoreWorld(ring, config=make.CONFIG).open()
    assert json.loads(json.dumps(make.expected(world))) == wanted("v1")
    assert world.catalog.keys == {(1, b"a key"): (46, 3)}
    world.append(1, 5)
    world.checkpoint()
    assert len(world.next_life(power_cut=True).topic(1).rows) == len(wanted("v1")["orders"]["records"]) + 5


def test_it_keeps_the_first_format_until_it_is_to_hold_what_needs_the_second() -> None:
    world = StoreWorld(first(), config=make.CONFIG).open()
    world.append(1, 5)
    world.checkpoint()
    world = world.next_life()
    assert format_in(world.ring.file_bytes(f"{DIRECTORY}/topics.json")) == 1
    compressed = replace(make.CONFIG, cold_dir="cold", hot_retain_segments=0, segment_codec="zstd")
    world = world.next_life(config=compressed)
    records = make.expected(world)
    world.append(2, 1)
    world.checkpoint()
    world = world.next_life(power_cut=True)
    assert format_in(world.ring.file_bytes(f"{DIRECTORY}/topics.json")) == 2
    assert is_compressed(world.ring.file_bytes(f"cold/{TOPIC}/seg-{1:020d}.data"))
    assert make.expected(world)["orders"] == records["orders"]


def test_a_directory_of_the_second_format_opens_and_goes_on() -> None:
    """R-BYTES-2, R-READER-3, R-DUR-8."""
    world = make_second.world()
    for part, path in make_second.PLACES.items():
        lay_down(world.ring, GOLDEN / "v2" / part, path)
    hot, cold = make_second.PLACES.values()
    assert is_compressed(world.ring.file_bytes(f"{cold}/{TOPIC}/seg-{1:020d}.data"))
    loop = Loop(world.ring, world.ring.clock)
    assert loop.run_task(verify(loop, hot, cold)).findings == []
    world.crash()
    world.start()
    assert f"seg-{21:020d}-1.data" in world.ring.disk.list_directory(f"{hot}/{TOPIC}")
    found = make_second.expected(world)
    assert found == wanted("v2")
    make_second.write(world, "orders", range(44, 60))
    make_second.commit(world, 3)
    world.advance_ms(3000)
    world.power_cut()
    world.start()
    assert len(world.diff("orders")["records"]) == len(wanted("v2")["orders"]) + 16
    assert world.request("GET", make_second.READER).json["committed"] == 12
    assert format_in(world.ring.file_bytes(f"{hot}/topics.json")) == 2
    world.close()


def start_in(world: SimWorld, golden: str, rebuilt: bool) -> None:
    """Start a server in golden directories without a fault, perhaps rebuilt from segments and log only."""
    for part, path in make_second.PLACES.items():
        lay_down(world.ring, GOLDEN / golden / part, path)
    hot, cold = make_second.PLACES.values()
    assert is_compressed(world.ring.file_bytes(f"{cold}/{TOPIC}/seg-{1:020d}.data"))
    loop = Loop(world.ring, world.ring.clock)
    assert loop.run_task(verify(loop, hot, cold)).findings == []
    if rebuilt:
        without_indexes(world.ring, hot, cold)
        loop.run_task(rebuild(loop, hot, cold))
    world.crash()
    world.start()


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_directory_of_the_third_format_opens_and_its_delays_go_on(rebuilt: bool) -> None:
    """R-DELAY-3, R-DELAY-6: also rebuilt without its snapshots and its indexes."""
    world = make_second.world()
    world.step_clock_ms(make_third.DELAYS_MS[1] + 10_000)
    start_in(world, "v3", rebuilt)
    found = make_third.expected(world)
    if rebuilt:  # an ack is in the log, which a rebuild reads from its beginning
        assert found["jobs"]["queue"]["delayed"] == wanted("v3")["jobs"]["queue"]["delayed"]  # type: ignore[index]
        assert found["few"] == wanted("v3")["few"]
    else:
        assert found == wanted("v3")
    world.advance_ms(2000)
    make_third.write(world, "few", range(10, 12))
    world.power_cut()
    world.start()
    assert world.state("few")["queue"]["delayed"] == 5
    assert format_in(world.ring.file_bytes(f"{make_second.PLACES['data']}/topics.json")) == 3
    world.close()


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_directory_with_ttls_of_records_opens_and_they_go_on(rebuilt: bool) -> None:
    """R-RTTL-3, R-RTTL-6: also rebuilt without its snapshots and its indexes, which forgets some holes."""
    world = make_second.world()
    world.step_clock_ms(make_ttls.TTLS_MS[2] + 20_000)
    start_in(world, "v3-ttls", rebuilt)
    found = make_ttls.expected(world)
    if rebuilt:
        records = [[each for each in topic if "$seq" in each] for topic in (found["mixed"], wanted("v3-ttls")["mixed"])]
        assert records[0] == records[1]
        assert [each["gap_to"] for each in found["mixed"] if "gap_to" in each][-1] == 46
    else:
        assert found == wanted("v3-ttls")
    world.step_clock_ms(make_ttls.TTLS_MS[3])
    make_ttls.write(world, "mixed", range(48, 49))
    world.power_cut()
    world.start()
    live = [each["$seq"] for each in make_ttls.walk(world, "mixed") if "$seq" in each]
    assert live == [*range(1, 46, 4), 47]
    assert format_in(world.ring.file_bytes(f"{make_second.PLACES['data']}/topics.json")) == 3
    world.close()


def without_indexes(ring: SimRing, hot: str, cold: str) -> None:
    """Remove the snapshots of a directory, and the indexes of its first topic."""
    for name in ring.disk.list_directory(f"{hot}/snapshots"):
        ring.disk.unlink(f"{hot}/snapshots/{name}")
    for root in (hot, cold):
        for name in ring.disk.list_directory(f"{root}/{TOPIC}"):
            if name.endswith(".idx"):
                ring.disk.unlink(f"{root}/{TOPIC}/{name}")


def test_a_build_of_the_first_format_refuses_the_second_with_a_sentence() -> None:
    paths = {1: GOLDEN / "v1" / "topics.json"} | {n: GOLDEN / f"v{n}" / "data" / "topics.json" for n in (2, 3)}
    markers = {number: msgspec.json.decode(path.read_bytes(), type=Marker) for number, path in paths.items()}
    assert refused_by_a_build_of_the_first_format(markers[1], "data") == ""
    assert refused_by_a_build_of_the_first_format(markers[2], "data") == "data: format 2; this build knows 1"
    assert refused_by_a_build_of_the_second_format(markers[2], "data") == ""
    assert refused_by_a_build_of_the_second_format(markers[3], "data") == "data: format 3; this build knows 1 to 2"

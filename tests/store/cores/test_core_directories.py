"""A layout that is not whole is refused with a sentence, and left as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import SimRing
from tests.store.cores.cores_world import layout, made, of_one_core, topics_in
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import FormatError, StorageError
from topics.loop import Loop
from topics.store.cores.core_directories import refuse_several_cores
from topics.store.disk.data_directory import lock_directory

CORE_1 = f"{DIRECTORY}/core-01"


def several() -> SimRing:
    ring = of_one_core(clean=True)
    made(ring, 3)
    return ring


def moved(old: str, new: str) -> Callable[[SimRing], object]:
    return lambda ring: ring.disk.rename(f"{DIRECTORY}/{old}", f"{DIRECTORY}/{new}")


def copied(core: int, name: str) -> Callable[[SimRing], object]:
    def copy(ring: SimRing) -> None:
        marker = ring.file_bytes(f"{DIRECTORY}/core-{core:02d}/topics.json")
        ring.put_file(f"{DIRECTORY}/{name}/topics.json", marker)

    return copy


def marked(text: bytes) -> Callable[[SimRing], object]:
    return lambda ring: ring.put_file(f"{CORE_1}/topics.json", text)


FAULTS = {
    "missing": (
        moved("core-01", "elsewhere"),
        "^data: core-01 is missing, and the slot map has 3 cores: put it back from where it was moved to, or make",
    ),
    "a file": (
        lambda ring: (moved("core-01", "elsewhere")(ring), ring.put_file(CORE_1, b"x")),
        "^data/core-01: the marker topics.json is missing or damaged",
    ),
    "there twice, in the place of another one": (
        copied(2, "core-01"),
        "^data/core-01 holds core 2, which is there twice or has changed its place: put the directory of core 1 in",
    ),
    "there twice, under a number of its own": (
        copied(1, "core-03"),
        "^data: core-03 is there, and the slot map has 3 cores: move it out .*; it is a copy of core-01$",
    ),
    "there twice, under another name": (
        copied(1, "core-01.old"),
        r"core-01.old is there, .*; it is a copy of core-01$",
    ),
    "one too many": (
        lambda ring: ring.put_file(f"{DIRECTORY}/core-07/lock", b""),
        "^data: core-07 is there, and the slot map has 3 cores: move it out of the data directory, because no topic is",
    ),
    "of another directory": (
        marked(b'{"format":1,"cores":2,"core":1,"of":"00"}'),
        "^data/core-01 is of another data directory than data: put that of core 1 in its place$",
    ),
    "a log of one core": (marked(b'{"format":1,"cores":1}'), "^data/core-01 is of another data directory than data"),
    "without its marker": (
        lambda ring: ring.disk.unlink(f"{CORE_1}/topics.json"),
        r'is missing or damaged: .* write this to it: {"format":5,"cores":2,"core":1,"of":"[0-9a-f]{32}","number":2}$',
    ),
    "an earlier one of its core": (
        lambda ring: ring.put_file(
            f"{CORE_1}/topics.json",
            ring.file_bytes(f"{CORE_1}/topics.json").replace(b'"number":2', b'"number":1'),
        ),
        "^data/core-01 has the number 1 and is not the directory that core 1 has now, whose number is 2: put that one",
    ),
    "with a damaged marker": (marked(b"{"), "^data/core-01: the marker topics.json is missing or damaged"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_core_directory_that_is(fault: str) -> None:
    ring = several()
    damage, sentence = FAULTS[fault]
    damage(ring)
    before = ring.disk.contents(DIRECTORY)
    with pytest.raises(StorageError, match=sentence):
        layout(ring)
    assert ring.disk.contents(DIRECTORY) == before


def test_the_marker_that_the_sentence_shows_is_the_remedy() -> None:
    ring = several()
    ring.disk.unlink(f"{CORE_1}/topics.json")
    with pytest.raises(StorageError) as caught:
        layout(ring)
    ring.put_file(f"{CORE_1}/topics.json", str(caught.value).partition("write this to it: ")[2].encode())
    cores = layout(ring)
    assert cores is not None
    assert topics_in(ring, CORE_1, 1) == {}


def test_names_of_others_do_not_matter() -> None:
    ring = several()
    for name in ("keys", "lost+found", ".core-09", "corefile"):
        ring.put_file(f"{DIRECTORY}/{name}", b"")
    assert layout(ring) is not None


def test_the_other_file_of_the_map_is_read_and_the_damage_is_named() -> None:
    ring = several()
    ring.corrupt_file(f"{DIRECTORY}/slot-map", 200)
    cores = layout(ring)
    assert cores is not None
    assert cores.damage == ["data/slot-map: the checksum of the slot map is wrong"]


# --- nothing is opened as a directory of one core ---------------------------------------------------------------------


def without(*names: str) -> Callable[[SimRing], object]:
    return lambda ring: [ring.disk.unlink(f"{DIRECTORY}/{name}") for name in names]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            without(),
            "^data: made for 3 cores: serve it by `topics serve --cores 3`, or make it one of one core",
        ),
        (
            without("topics.json"),
            "^data: made for several cores, as its slot-map says: serve it by `topics serve --cores auto`",
        ),
        (
            lambda ring: ring.put_file(f"{DIRECTORY}/topics.json", b'{"format":1,"cores":1}'),
            "^data: made for several cores, as its slot-map says: serve it by `topics serve --cores auto`",
        ),
        (lambda ring: ring.put_file(f"{DIRECTORY}/topics.json", b"{"), "^data/topics.json: "),
        (
            without("topics.json", "slot-map"),
            "a snapshot of version 1000; this build knows 2: use the version of topics",
        ),
    ],
    ids=["whole", "no marker", "marker of one core", "damaged marker", "only the copy of the map"],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_directory_of_several_cores_is_not_opened_by_one(
    change: Callable[[SimRing], object], sentence: str, frozen: bool
) -> None:
    ring = several()
    change(ring)
    with pytest.raises(FormatError, match=sentence):
        StoreWorld(ring).open_frozen() if frozen else StoreWorld(ring).open()
    ring = ring.next_life(power_cut=False)
    loop = Loop(ring, ring.clock)
    if "slot-map" in ring.list_directory(DIRECTORY):
        with pytest.raises(FormatError, match="^data: made for "):
            loop.run_task(refuse_several_cores(loop.files, DIRECTORY))
    assert sorted(name for name in ring.list_directory(DIRECTORY) if name.startswith("core-")) == [
        "core-00",
        "core-01",
        "core-02",
    ]


def test_a_core_directory_is_opened_by_its_core_only() -> None:
    ring = several()
    config = small_config(data_dir=CORE_1)
    with pytest.raises(
        FormatError, match="core-01: holds core 1 of a directory of several cores, and no log by itself"
    ):
        StoreWorld(ring, config=config).open()
    loop = Loop(ring, ring.clock)
    with pytest.raises(FormatError, match="core-01: holds core 1 .*: name the directory above it$"):
        loop.run_task(refuse_several_cores(loop.files, CORE_1))
    with pytest.raises(FormatError, match="core-01: its marker is not that of core 2: put the directory of that core"):
        topics_in(ring.next_life(power_cut=False), CORE_1, 2)
    ring = ring.next_life(power_cut=False)
    ring.disk.unlink(f"{CORE_1}/topics.json")
    with pytest.raises(FormatError, match="the marker of core 1 is missing: restore topics.json from a copy of it"):
        topics_in(ring, CORE_1, 1)


def test_a_directory_of_one_core_is_as_before() -> None:
    ring = of_one_core(clean=True)
    loop = Loop(ring, ring.clock)
    loop.run_task(refuse_several_cores(loop.files, DIRECTORY))
    assert layout(ring) is None
    lock_directory(ring, small_config()).release()
    assert sorted(StoreWorld(ring).open().catalog.topics) == [1, 2, 3]
    assert ring.file_bytes(f"{DIRECTORY}/topics.json") == b'{"format":1,"cores":1}'

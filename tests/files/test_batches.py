"""Batches: their columns and types, what they cost in reads, and their bounds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.files.files_world import HOT, FilesWorld
from tests.sim.world.sim_file import SimFile
from topics.files import COLUMNS, DEFAULT_COLUMNS, BytesRecordError, Directory, Piece, read_pieces, schema_of
from topics.files.texts import NATIVE, PURE
from topics.store.format.rows import RowRecord, pack_rows

DECODERS = pytest.mark.parametrize("decoder", [NATIVE, PURE], ids=["C", "numpy"])


@pytest.fixture(scope="module")
def world() -> FilesWorld:
    """Sealed segments in both tiers, one that is not sealed, packs; tags, nodes and meta at some records."""
    world = FilesWorld(1, pack_run_bytes=2000)
    for number in range(8):
        world.append(*({"n": number, "at": at} for at in range(17)), name="big", tag="a", meta={"k": 1})
        world.append(*range(9), name="big", tag="b", node=b"n")
        world.append("x" * 200, name="big")
        world.append(number, name="small", tag="b" if number % 2 else None)
        world.checkpoint()
    world.delete(before_seq=20, name="big")
    world.checkpoint()
    return world


def pieces_of(directory: Directory) -> list[Piece]:
    return [piece for topic in directory.topics.values() for piece in topic.pieces]


def read(world: FilesWorld, pieces: list[Piece], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows as they come, and the paths that were opened for them."""
    calls = world.calls
    batches = list(read_pieces(world.directory().location, pieces, calls=calls, **options))
    assert calls.descriptors == 0
    return [row for batch in batches for row in batch.to_pylist()], calls.opened


def test_types_are_those_that_spark_takes() -> None:
    assert str(schema_of(COLUMNS[:-1])).splitlines() == [
        "topic: string not null",
        "seq: int64 not null",
        "ts: timestamp[us, tz=UTC] not null",
        "tag: string",
        "node: string",
        "data: string not null",
        "meta: string",
        "size: int64 not null",
    ]
    assert tuple(schema_of(DEFAULT_COLUMNS).names) == COLUMNS[:-2]
    assert str(schema_of(["data", "bytes"])).splitlines() == ["data: string", "bytes: binary"]


@DECODERS
def test_any_columns_in_any_order_are_those_of_all_of_them(world: FilesWorld, decoder: Any) -> None:
    pieces = pieces_of(world.directory())
    whole, _opened = read(world, pieces, columns=COLUMNS, decoder=decoder)
    assert len(whole) > 200
    for names in [*itertools.permutations(COLUMNS, 2), *((name,) for name in COLUMNS), ("data", "tag", "seq", "meta")]:
        rows, _opened = read(world, pieces, columns=list(names), decoder=decoder)
        assert rows == [{name: row[name] for name in names} for row in whole]
        assert not rows or list(rows[0]) == list(names)


@DECODERS
def test_what_indexes_have_is_never_read_from_the_data(world: FilesWorld, decoder: Any) -> None:
    directory = world.directory()
    sealed = [piece for piece in directory.topics["big"].pieces if piece.sealed]
    assert {piece.tier for piece in sealed} == {0, 1}
    rows, opened = read(world, sealed, columns=["topic", "seq", "ts", "tag", "size"], decoder=decoder)
    assert len(opened) == len(sealed)
    assert all(path.endswith(".idx") for path in opened)
    whole, _opened = read(world, sealed, columns=COLUMNS)
    assert rows == [{name: row[name] for name in ("topic", "seq", "ts", "tag", "size")} for row in whole]
    chosen, opened = read(world, sealed, columns=["seq"], tags=["b"], decoder=decoder)
    assert [row["seq"] for row in chosen] == [row["seq"] for row in rows if row["tag"] == "b"]
    assert all(path.endswith(".idx") for path in opened)


@DECODERS
def test_a_range_of_seqs_reads_the_files_it_lies_in_and_no_other(world: FilesWorld, decoder: Any) -> None:
    topic = world.directory().topics["big"]
    whole = read(world, list(topic.pieces), columns=COLUMNS)[0]
    for first, last in ((1, 25), (40, 40), (33, 71), (topic.head, topic.head), (100, 99)):
        pieces = topic.plan(first, last)
        rows, opened = read(world, pieces, columns=COLUMNS, decoder=decoder)
        assert rows == [row for row in whole if first <= row["seq"] <= last]
        assert len({path.rpartition(".")[0] for path in opened}) == len(pieces)


@DECODERS
@pytest.mark.parametrize("rot", [False, True], ids=["sound", "without indexes"])
def test_only_records_with_one_of_the_tags_come(world: FilesWorld, decoder: Any, rot: bool) -> None:
    pieces = pieces_of(world.directory())
    whole = read(world, pieces, columns=COLUMNS)[0]
    nodes = [node for piece in pieces if (node := index_of(world, piece)) is not None] if rot else []
    for node in nodes:
        node.live[70] ^= 1
    for tags in (["a"], ["a", "b"], ["none has it"], []):
        for columns in (["seq", "data"], ["seq"], ["tag"]):
            rows, _opened = read(world, pieces, columns=columns, tags=tags, decoder=decoder)
            assert rows == [{name: row[name] for name in columns} for row in whole if row["tag"] in tags]
    for node in nodes:
        node.live[70] ^= 1


def index_of(world: FilesWorld, piece: Piece) -> SimFile | None:
    try:
        node = world.ring.disk.find(f"{HOT}/{piece.path.replace('.data', '.idx')}")
    except FileNotFoundError:
        return None
    return node if isinstance(node, SimFile) else None


@DECODERS
def test_batches_keep_to_their_bounds_and_small_ones_are_put_together(world: FilesWorld, decoder: Any) -> None:
    directory = world.directory()
    pieces = pieces_of(directory)

    def sizes(**options: Any) -> list[int]:
        options = {"columns": COLUMNS, "calls": world.calls, "decoder": decoder, **options}
        batches = list(read_pieces(directory.location, pieces, **options))
        assert all(batch.num_rows for batch in batches)
        return [batch.num_rows for batch in batches]

    count = sum(sizes())
    assert len(sizes()) == 1, "files with few rows come together"
    assert set(sizes(batch_rows=1)) == {1}
    assert max(sizes(batch_rows=7)) == 7
    assert sum(sizes(batch_rows=7)) == count
    small = sizes(batch_bytes=600)
    assert sum(small) == count
    assert max(small) <= 600 // 60
    assert set(sizes(batch_bytes=1)) == {1}, "a record that is larger than the bound comes alone"


@DECODERS
def test_records_larger_than_what_is_read_at_a_time(decoder: Any) -> None:
    world = FilesWorld(1, pack_run_bytes=0, wal_file_bytes=1 << 20, segment_max_events=3)
    texts = ["x" * count for count in (10, 9000, 100, 70_000, 20, 30)]
    for text in texts:
        world.append(text, name="big")
    world.checkpoint()
    directory = world.directory()
    small = decoder._replace(window_bytes=4096)
    for piece_kind in (True, False):
        pieces = [piece for piece in directory.topics["big"].pieces if piece.sealed is piece_kind]
        rows = read(world, pieces, columns=["seq", "data"], decoder=small)[0]
        assert [(row["seq"], row["data"]) for row in rows] == [
            (seq, f'"{texts[seq - 1]}"') for piece in pieces for seq in range(piece.from_seq, piece.to_seq + 1)
        ]


@pytest.fixture(scope="module")
def mixed() -> FilesWorld:
    """Records of bytes among others, in segments of both tiers and in packs."""
    world = FilesWorld(2, pack_run_bytes=500)
    for number in range(6):
        records = [RowRecord(bytes([255, number]) * at, b"a", is_bytes=True) for at in range(20)]
        for name, rows in (("big", records), ("small", [RowRecord(b"1"), RowRecord(b"\xff\0", is_bytes=True)])):
            answer = world.start_append(pack_rows([RowRecord(b'{"n":1}'), *rows]), name)
            world.settle()
            answer.get()
        world.checkpoint()
    return world


@DECODERS
def test_a_column_of_bytes_has_what_is_no_json_and_data_is_null_there(mixed: FilesWorld, decoder: Any) -> None:
    pieces = pieces_of(mixed.directory())
    assert len({piece.tier for piece in pieces}) == 2
    rows, _opened = read(mixed, pieces, columns=["topic", "data", "bytes", "size"], decoder=decoder)
    big = [row for row in rows if row["topic"] == "big"]
    assert [(row["data"], row["bytes"]) for row in big[:4]] == [
        ('{"n":1}', None), (None, b""), (None, b"\xff\0"), (None, b"\xff\0\xff\0")
    ]  # fmt: skip
    assert all(row["size"] == len(row["data"] or row["bytes"] or b"") for row in rows)
    only, _opened = read(mixed, pieces, columns=["bytes"], decoder=decoder)
    assert only == [{"bytes": row["bytes"]} for row in rows]


@DECODERS
def test_a_record_of_bytes_fails_a_read_of_data_that_does_not_ask_for_bytes(mixed: FilesWorld, decoder: Any) -> None:
    pieces = pieces_of(mixed.directory())
    message = "record 2 of topic big is bytes, which the column data cannot hold: ask for the column bytes, too"
    with pytest.raises(BytesRecordError, match=message):
        read(mixed, pieces, columns=["data"], decoder=decoder)
    assert len(read(mixed, pieces, columns=["seq", "tag"], decoder=decoder)[0]) > 100

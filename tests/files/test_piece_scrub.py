"""Scrubbing: each bad frame is named, whatever rotted, and what is sound is not complained of."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from tests.files.files_world import COLD, HOT, FilesWorld
from tests.files.sim_calls import SimCalls
from tests.files.test_piece_rot import pieces_of, rotting, small_files
from tests.sim.world.sim_file import SimFile
from topics.files import Kind, Piece, PieceScan, scan_piece, scan_pieces, scan_snapshots
from topics.files.piece_files import PieceSource
from topics.files.scanning import scan_native, scan_pure
from topics.store.format.log_format import BLOCK_BYTES
from topics.store.layouts.directory_names import index_path

KINDS = ["cold", "cold index", "sealed", "unsealed", "pack"]


@pytest.fixture(scope="module")
def world() -> FilesWorld:
    return small_files()


def scrub(world: FilesWorld, pieces: list[Piece], calls: Any = None, **options: Any) -> list[PieceScan | None]:
    calls = calls or world.calls
    found = list(scan_pieces(world.directory().location, pieces, calls=calls, **options))
    assert calls.descriptors == 0
    return found


def bad(found: list[PieceScan | None]) -> list[tuple[int, str, int, bool]]:
    """(offset, topic, seq, derived) of each finding."""
    return [
        (finding.offset, finding.topic, finding.seq, finding.derived)
        for report in found
        if report is not None
        for finding in report.findings
    ]


def node_of(world: FilesWorld, piece: Piece, *, index: bool = False) -> SimFile:
    path = f"{COLD if piece.tier else HOT}/{piece.path}"
    node = world.ring.disk.find(index_path(path) if index else path)
    assert isinstance(node, SimFile)
    return node


def frames_of(world: FilesWorld, piece: Piece) -> list[tuple[int, int, int]]:
    """(offset, length, seq) of the live ones."""
    source = PieceSource(world.directory().location, world.calls)
    rows = source.rows(piece).rows
    source.close()
    return list(zip(rows.offsets.tolist(), rows.lengths.tolist(), rows.seqs.tolist(), strict=True))


def is_padding(data: bytes, at: int) -> bool:
    """Zeros, so many in a row that they say nothing."""
    first, last = len(data[:at].rstrip(b"\0")), len(data) - len(data[at:].lstrip(b"\0"))
    return data[at] == 0 and last - first >= 24


def test_a_sound_directory_has_no_findings_and_all_its_bytes_are_looked_at(world: FilesWorld) -> None:
    directory = world.directory()
    for scan in (scan_native, scan_pure):
        for name, topic in directory.topics.items():
            found = [report for report in scrub(world, list(topic.pieces), scan=scan) if report is not None]
            assert bad(list(found)) == []
            assert sum(report.live for report in found) == len(world.diff_all(name).records)
            assert sum(report.frames for report in found) > sum(report.live for report in found)
            assert {(report.path, report.tier) for report in found} == {
                (f"{COLD if piece.tier else HOT}/{piece.path}", piece.tier) for piece in topic.pieces
            }
    sealed = pieces_of(directory)["sealed"]
    (report,) = scrub(world, [sealed])
    assert report is not None
    assert report.bytes == len(node_of(world, sealed).live) + len(node_of(world, sealed, index=True).live)


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_that_rots_is_found_where_it_is(world: FilesWorld, kind: str, every: int) -> None:
    kind, _, index = kind.partition(" ")
    directory = world.directory()
    piece = pieces_of(directory)[kind]
    pieces = [one for one in directory.topics[piece.topic].pieces if one.path == piece.path]
    frames = [frame for one in pieces for frame in frames_of(world, one)]
    node = node_of(world, piece, index=bool(index))
    end = len(node.live) if piece.sealed or index else piece.end
    sound = bytes(node.live)
    for at in rotting(node, every):
        if at >= end or is_padding(sound, at):
            continue  # after what the snapshot counts, or nothing
        found = scrub(world, pieces, scan=scan_native)
        assert bad(found), at
        assert found == scrub(world, pieces, scan=scan_pure), at
        hit = [(offset, seq) for offset, length, seq in frames if offset <= at < offset + length - 1 and not index]
        if hit:
            assert [(found_at, seq) for found_at, _topic, seq, _derived in bad(found)] == hit, at
        assert all(derived for _at, _topic, _seq, derived in bad(found)) or not index


@pytest.mark.parametrize("kind", ["sealed", "sealed without index", "unsealed", "pack"])
@pytest.mark.parametrize("scan", [scan_native, scan_pure], ids=["C", "numpy"])
def test_each_bad_frame_is_named_and_those_between_are_counted(kind: str, scan: Any) -> None:
    world = FilesWorld(4, pack_run_bytes=10_000 if kind == "pack" else 0, segment_max_events=20)
    for number in range(10):
        world.append({"n": number, "pad": "x" * (7 * number)}, name="big")
    if kind.startswith("sealed"):
        world.append(*range(11), name="big")
    world.checkpoint()
    (piece, *_rest) = world.directory().topics["big"].pieces
    assert (piece.kind is Kind.RUN, piece.sealed) == (kind == "pack", kind != "unsealed")
    frames = frames_of(world, piece)
    node = node_of(world, piece)
    if kind.endswith("without index"):
        world.ring.disk.unlink(index_path(f"{HOT}/{piece.path}"))
    for row, byte in ((0, 0), (3, 60), (4, 2), (8, 20)):  # lengths, texts, seqs
        node.live[frames[row][0] + byte] ^= 0x10
    (found,) = scrub(world, [piece], scan=scan)
    assert found is not None
    rotten = [0, 3, 4, 8]
    if kind in ("unsealed", "sealed without index"):
        rotten.remove(4)  # nothing shows that there is a frame between the one that is bad and the next sound one
    assert bad([found]) == [(frames[row][0], "big", frames[row][2], False) for row in rotten]
    assert found.frames == len(frames) - 4
    assert found.findings[0].message == (
        f"{found.path}: the record at byte {frames[0][0]}, seq 1, is damaged (topic big)"
    )


@pytest.mark.parametrize("kind", ["cold", "sealed", "unsealed", "pack"])
def test_a_file_that_was_cut_off_is_damaged_from_there_on(kind: str) -> None:
    world = small_files()
    directory = world.directory()
    piece = pieces_of(directory)[kind]
    node = node_of(world, piece)
    sound = bytes(node.live)
    ends = [offset + length for offset, length, _seq in frames_of(world, piece)]
    for cut in (0, 1, 40, ends[0] - 1, ends[0], ends[-1] - 1, ends[-1], ends[-1] + 1, len(sound) - 1):
        if kind == "unsealed" and cut >= piece.end:
            continue  # that was not there when the snapshot was taken
        node.live[:] = sound[:cut]
        found = scrub(world, [piece], scan=scan_native)
        if kind == "pack" and cut < BLOCK_BYTES:
            assert found == [None], (
                "without a header it may be another pack that is only begun; the pipeline looks again"
            )
        else:
            assert bad(found), cut
        assert found == scrub(world, [piece], scan=scan_pure), cut
        node.live[:] = sound


def test_a_file_that_moved_is_found_and_one_that_is_gone_is_nothing() -> None:
    world = FilesWorld(3, pack_run_bytes=0)
    world.append(*range(45), name="big", tag="a")
    world.checkpoint()
    directory = world.directory()
    pieces = directory.topics["big"].pieces
    world.append(*range(40), name="big")
    for _ in range(2):
        world.checkpoint()
    (moved, *_rest) = scrub(world, list(pieces))
    assert moved is not None
    assert (moved.tier, moved.frames, moved.path) == (1, 20, f"{COLD}/{pieces[0].path}")
    world.delete(match="a", name="big")
    for _ in range(3):
        world.checkpoint()
    assert scan_piece(directory.location, pieces[0], calls=world.calls) is None


def test_frames_that_are_sound_and_not_those_that_were_written_are_found(world: FilesWorld) -> None:
    """A block of an older copy of the file, say."""
    directory = world.directory()
    piece = pieces_of(directory)["unsealed"]
    node = node_of(world, piece)
    (report,) = scrub(world, [piece.__class__(**{name: getattr(piece, name) for name in piece.__slots__} | {"sum": 1})])
    assert report is not None
    assert "the frames are sound, but not those that were written" in report.findings[0].message
    assert len(node.live) >= piece.end


def test_a_disk_that_fails_is_a_finding_and_the_next_file_is_looked_at(world: FilesWorld) -> None:
    directory = world.directory()
    pieces = list(directory.topics["big"].pieces)

    def before(name: str, path: str) -> None:
        if name == "read" and path.endswith(pieces[0].path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    found = scrub(world, pieces, SimCalls(lambda: world.ring.disk, before))
    assert bad(found) == [(-1, "big", -1, False)]
    first = found[0]
    assert first is not None
    assert first.findings[0].message == f"{COLD}/{pieces[0].path} cannot be read: Input/output error"


def test_damaged_snapshots_are_found(world: FilesWorld) -> None:
    location = world.directory().location
    assert scan_snapshots(location, calls=world.calls) == []
    name = max(world.ring.disk.list_directory(f"{HOT}/snapshots"))
    node = world.ring.disk.find(f"{HOT}/snapshots/{name}")
    assert isinstance(node, SimFile)
    node.live[90] ^= 1
    (finding,) = scan_snapshots(location, calls=world.calls)
    assert (finding.path, finding.offset) == (f"{HOT}/snapshots/{name}", 0)
    node.live[90] ^= 1


def test_what_was_dead_before_its_segment_was_sealed_is_in_no_index_and_is_looked_at() -> None:
    world = FilesWorld(4, pack_run_bytes=0, segment_max_events=20)
    world.append(*range(6), name="big")
    world.append(*range(6), name="big", tag="gone")
    world.append(*range(6), name="big")
    world.checkpoint()
    world.delete(before_seq=3, name="big")
    world.delete(match="gone", name="big")
    world.append(*range(6), name="big")
    world.checkpoint()
    piece = world.directory().topics["big"].pieces[0]
    assert piece.sealed
    (sound,) = scrub(world, [piece])
    assert sound is not None
    assert (sound.findings, sound.frames, len(frames_of(world, piece))) == ([], 20, 12)
    at = frames_of(world, piece)[3][0] + frames_of(world, piece)[3][1]  # seq 7, which is deleted
    node_of(world, piece).live[at + 30] ^= 1
    (found,) = scrub(world, [piece])
    assert found is not None
    assert bad([found]) == [(at, "big", 7, False)]
    assert found.frames == 19

"""Topics that no request has named since the start: columns, as in the snapshot and the packs.

A topic object is created from its row on the first request that names it, and the topic is never
dormant again. Snapshots, lists and counters read the columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.common.bounded_steps import result_of
from topics.common.id_blocks import IdDict
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.index.usage import Usage
from topics.engine.shared.names_in_blocks import ByName
from topics.engine.shared.topic_snapshot import PlainTopics, config_table
from topics.engine.state.control_frames import parse_config
from topics.engine.state.topic import Life, Topic
from topics.engine.values.priority import effective_priority
from topics.engine.values.results import TopicState
from topics.engine.values.topic_config import TopicConfig
from topics.store.format.catalog import NO_TAG, PackRows, RowColumns
from topics.store.format.row_columns import split

_NO_RUN = -1
_ROWS_A_STEP, _SAMPLES = 1 << 16, 16


class DormantBlocks:
    """The topics of a snapshot that will be dormant, taken block by block: no step is long."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.configs: list[TopicConfig] = []
        self.by_name = ByName[int]()
        self.by_id = IdDict[int]()
        self.by_class: dict[str, int] = {}
        """The number of topics by class."""
        self._parts: dict[str, list[NDArray[np.uint64]]] = {name: [] for name in (*_COLUMNS, "incarnations")}

    def add(self, block: PlainTopics) -> None:
        """Take topics whose names and ids are new."""
        row, count = len(self.names), len(block.names)
        table = [parse_config(config) for config in block.configs]
        configs = [table[number] for number in block.config]
        for config in configs:
            self.by_class[config.durability] = self.by_class.get(config.durability, 0) + 1
        self.configs += configs
        self.names += block.names
        by_name, by_id = self.by_name, self.by_id
        for name, topic_id, at in zip(block.names, block.ids, range(row, row + count), strict=True):
            by_name[name] = at
            by_id[topic_id] = at
        for column in _COLUMNS:
            self._parts[column].append(np.array(getattr(block, column), np.uint64))
        incarnations = np.frombuffer(bytes.fromhex(block.incarnations), ">u8")
        self._parts["incarnations"].append(incarnations.astype(np.uint64))

    def columns(self) -> Generator[None, None, dict[str, NDArray[Any]]]:
        """Return the columns of all topics, by name, and their rows by id, in bounded steps.

        The pages of a column of a million topics, which are new, take some 20 ms.
        """
        joined: dict[str, NDArray[Any]] = {}
        for name, parts in self._parts.items():
            joined[name] = yield from _joined(parts)
        joined["by_id"], joined["sorted_ids"] = yield from _by_id(self._parts["ids"], joined["ids"])
        joined["runs"] = runs = np.empty(len(self.names), np.int64)
        for begin in range(0, len(runs), _ROWS_A_STEP):
            runs[begin : begin + _ROWS_A_STEP] = _NO_RUN
            yield
        return joined


def _joined(parts: list[NDArray[np.uint64]]) -> Generator[None, None, NDArray[np.uint64]]:
    """Return a column of its parts, in bounded steps."""
    whole = np.empty(sum(map(len, parts)), np.uint64)
    begin = done = 0
    for part in parts:
        whole[begin : begin + len(part)] = part
        begin += len(part)
        if begin - done >= _ROWS_A_STEP:
            done = begin
            yield
    yield
    return whole


def _by_id(
    parts: list[NDArray[np.uint64]], ids: NDArray[np.uint64]
) -> Generator[None, None, tuple[NDArray[np.intp], NDArray[np.uint64]]]:
    """Return the rows by ascending id, and the ids in that order, in bounded steps.

    A sample says where the steps begin. The parts are nearly in order, so each step needs few.
    """
    order, ordered = np.empty(len(ids), np.intp), np.empty(len(ids), np.uint64)
    sample = np.sort(ids[:: max(1, _ROWS_A_STEP // _SAMPLES)])[_SAMPLES::_SAMPLES].tolist()
    firsts = list(accumulate(map(len, parts), initial=0))
    ranges = [(int(part.min()), int(part.max())) for part in parts]
    yield
    at = 0
    for low, high in pairwise([0, *sample, 1 << 64]):
        found: list[NDArray[np.intp]] = []
        for part, first, (least, most) in zip(parts, firsts, ranges, strict=False):
            if least < high and most >= low:
                found.append(np.flatnonzero((part >= low) & (part <= np.uint64(high - 1))) + first)
        if found:
            rows = np.concatenate(found)
            some = ids[rows]
            by = np.argsort(some, kind="stable")
            order[at : at + len(rows)], ordered[at : at + len(rows)] = rows[by], some[by]
            at += len(rows)
        yield
    return order, ordered


_COLUMNS = ("ids", "orders", "heads", "last_ts", "generations")


class Dormant:
    """The dormant topics. `by_name` and `by_id` map to rows; they lack topics that were made.

    The columns keep all rows. `usage` counts the records like those of an index.
    """

    def __init__(self, usage: Usage, blocks: DormantBlocks, columns: dict[str, NDArray[Any]]) -> None:
        """blocks: of which nothing is added any more. columns: what `blocks.columns()` returns."""
        self._usage = usage
        self.names = blocks.names
        self.configs = blocks.configs
        self.by_name = blocks.by_name
        self.by_id = blocks.by_id
        self._count = len(blocks.names)
        ids = self.ids = columns["ids"]
        self.orders = columns["orders"]
        self.heads = columns["heads"]
        self.last_ts = columns["last_ts"]
        self.generations = columns["generations"]
        self.incarnations = columns["incarnations"]
        self.consumed_ms = _zeros(ids)
        # --- of their records
        self.live = _zeros(ids)
        self.bytes = _zeros(ids)
        self.earliest = _zeros(ids)
        """The lowest live seq; 0 if there is none."""
        self._last_seqs = _zeros(ids)
        self._packs: list[PackRows] = []
        self._firsts: list[int] = []
        """The number of each pack's first run. Runs are numbered over all packs."""
        self._earlier: list[NDArray[np.int64]] = []
        """For each pack: the previous run of each run's topic, or `_NO_RUN`."""
        self._runs: NDArray[np.int64] = columns["runs"]
        """The newest run of each topic."""
        self._is_dormant = np.ones(len(ids), np.bool_)
        self._in_blocks = 0
        """The rows that `blocks` has passed."""
        self.made_after_block: set[int] = set()
        """The ids of topics made after `blocks` had yielded them, until `end_blocks`."""
        self._by_id_order: NDArray[np.intp] = columns["by_id"]
        self._sorted_ids: NDArray[np.uint64] = columns["sorted_ids"]

    @classmethod
    def none(cls, usage: Usage) -> Dormant:
        """Return what a directory without a snapshot has: no topics."""
        blocks = DormantBlocks()
        return cls(usage, blocks, result_of(blocks.columns()))

    def __len__(self) -> int:
        return self._count

    def last_id_below(self, end: int) -> int:
        """Return the highest of the ids below `end`; 0 without any."""
        return int(self.ids.max(initial=0, where=self.ids <= np.uint64(end - 1)))

    @property
    def last_order(self) -> int:
        """The highest of the orders; 0 without topics."""
        return int(self.orders.max(initial=0))

    # --- records -----------------------------------------------------------------------------------------------------
    def add_pack(self, pack: PackRows) -> list[int]:
        """Take the runs of dormant topics.

        Returns: the positions of the other runs: of topics that are not dormant, or not entirely
        new.
        """
        if not self.by_id:
            return list(range(len(pack.topic_ids)))
        places = np.minimum(np.searchsorted(self._sorted_ids, pack.topic_ids), len(self._sorted_ids) - 1)
        rows = self._by_id_order[places]
        starts = np.concatenate(([0], pack.ends[:-1]))
        seqs = pack.rows.seqs
        takes = (self.ids[rows] == pack.topic_ids) & self._is_dormant[rows] & (seqs[starts] > self._last_seqs[rows])
        if pack.rows.times is not None:  # Records of a dormant topic do not expire.
            takes &= np.add.reduceat(pack.rows.times[:, 1] > 0, starts, dtype=np.int64) == 0
        taken, rows = np.flatnonzero(takes), rows[takes]
        earlier = np.full(len(takes), _NO_RUN, np.int64)
        earlier[taken] = self._runs[rows]
        self._runs[rows] = self._run_count + taken
        self._firsts.append(self._run_count)
        self._earlier.append(earlier)
        self._packs.append(pack)
        firsts, lasts = starts[taken], pack.ends[taken] - 1
        counts = lasts + 1 - firsts
        sizes = np.add.reduceat(pack.rows.sizes, starts, dtype=np.uint64)[taken]
        self.earliest[rows] = np.where(self.earliest[rows] == 0, seqs[firsts], self.earliest[rows])
        self._last_seqs[rows] = seqs[lasts]
        self.heads[rows] = np.maximum(self.heads[rows], seqs[lasts])
        self.last_ts[rows] = np.maximum(self.last_ts[rows], pack.rows.ts[lasts])
        self.live[rows] += counts.astype(np.uint64)
        self.bytes[rows] += sizes
        self._usage.records += int(counts.sum())
        self._usage.bytes += int(sizes.sum())
        self._usage.placed(pack.rows.file_id, int(counts.sum()))
        return np.flatnonzero(~takes).tolist()

    @property
    def _run_count(self) -> int:
        return self._firsts[-1] + len(self._earlier[-1]) if self._firsts else 0

    def _runs_of(self, row: int) -> list[tuple[PackRows, int]]:
        """Return the runs of a topic, oldest first, as positions in their packs."""
        found: list[tuple[PackRows, int]] = []
        run = int(self._runs[row])
        while run != _NO_RUN:
            number = bisect_right(self._firsts, run) - 1
            at = run - self._firsts[number]
            found.append((self._packs[number], at))
            run = int(self._earlier[number][at])
        return found[::-1]

    def rows_by_file(self) -> dict[int, int]:
        """Return the number of rows of topics that are still dormant, by file id."""
        rows: dict[int, int] = {}
        for row in self.by_id.values():
            for pack, at in self._runs_of(row):
                start, end = _bounds(pack, at)
                rows[pack.rows.file_id] = rows.get(pack.rows.file_id, 0) + end - start
        return rows

    # --- topics ------------------------------------------------------------------------------------------------------
    def make(self, row: int) -> Topic:
        """Create the topic of a row, which is no longer dormant."""
        topic_id = int(self.ids[row])
        del self.by_name[self.names[row]], self.by_id[topic_id]
        self._count -= 1
        self._is_dormant[row] = False
        if row < self._in_blocks:
            self.made_after_block.add(topic_id)
        incarnation = f"{int(self.incarnations[row]):016x}"
        topic = Topic(self.names[row], topic_id, self.configs[row], int(self.orders[row]), self._usage, incarnation)
        topic.enter(Life.LIVE)
        topic.is_made = True
        topic.found_visible(int(self.heads[row]), int(self.last_ts[row]))
        topic.found_generation(int(self.generations[row]))
        topic.begin_writes(0)
        topic.consumed_ms = int(self.consumed_ms[row])
        self._usage.records -= int(self.live[row])
        self._usage.bytes -= int(self.bytes[row])
        for pack, at in self._runs_of(row):
            start, end = _bounds(pack, at)
            self._usage.left(pack.rows.file_id, end - start)
            if not _add_consecutive(topic, pack.rows, start, end):
                add_rows(topic, run_of(pack, at))
        if not self.by_id:  # Only iterators that are running now still use the columns.
            self._packs, self._earlier = [], []
        return topic

    def state(self, row: int, now_ms: int) -> TopicState:
        """Return the state of a dormant topic, like `Topic.state`."""
        config, head = self.configs[row], int(self.heads[row])
        return TopicState(
            self.names[row],
            config,
            head,
            int(self.earliest[row]) or head + 1,
            int(self.live[row]),
            int(self.bytes[row]),
            effective_priority(config, int(self.consumed_ms[row]), now_ms),
            None,
            None,
            None,
            f"{int(self.incarnations[row]):016x}",
        )

    def blocks(self, step: int) -> Iterator[PlainTopics]:
        """Yield the topics that are still dormant when their rows are reached, up to `step` a time.

        A column of all of them would take 40 ms with a million.
        """
        self.made_after_block = set()
        for start in range(0, len(self.ids), step):
            self._in_blocks = start + step
            some = np.flatnonzero(self._is_dormant[start : start + step]) + start
            if not len(some):
                continue
            numbers = some.tolist()
            config, table = config_table([self.configs[row] for row in numbers])
            yield PlainTopics(
                [self.names[row] for row in numbers],
                self.ids[some].tolist(),
                self.orders[some].tolist(),
                self.heads[some].tolist(),
                self.last_ts[some].tolist(),
                self.generations[some].tolist(),
                table,
                config,
                self.incarnations[some].astype(">u8").tobytes().hex(),
            )

    def end_blocks(self) -> None:
        """Forget which topics were made after `blocks` had yielded them."""
        self._in_blocks = 0
        self.made_after_block = set()


class DormantTopic:
    """A view of a dormant topic for readers of its state."""

    __slots__ = ("_dormant", "_row", "name")

    def __init__(self, dormant: Dormant, row: int) -> None:
        self._dormant = dormant
        self._row = row
        self.name = dormant.names[row]

    @property
    def config(self) -> TopicConfig:
        return self._dormant.configs[self._row]

    @property
    def head(self) -> int:
        return int(self._dormant.heads[self._row])

    @property
    def incarnation(self) -> str:
        return f"{int(self._dormant.incarnations[self._row]):016x}"

    @property
    def consumed_ms(self) -> int:
        return int(self._dormant.consumed_ms[self._row])

    @consumed_ms.setter
    def consumed_ms(self, value: int) -> None:
        self._dormant.consumed_ms[self._row] = value

    def state(self, now_ms: int) -> TopicState:
        return self._dormant.state(self._row, now_ms)


def run_of(pack: PackRows, at: int) -> RowColumns:
    """Return a run of a pack."""
    return next(split(pack.rows, list(_bounds(pack, at))))


def _bounds(pack: PackRows, at: int) -> tuple[int, int]:
    return int(pack.ends[at - 1]) if at else 0, int(pack.ends[at])


def _add_consecutive(topic: Topic, rows: RowColumns, start: int, end: int) -> bool:
    """Add rows [start, end), all new, in a third of the time of `Index.add_scattered`.

    Returns: False, and nothing is done, if there are holes, tags, or decreasing times.
    """
    part = slice(start, end)
    seqs, ts = rows.seqs[part], rows.ts[part]
    first = int(seqs[0])
    if int(seqs[-1]) - first != end - start - 1 or (len(rows.tag_table) and (rows.tags[part] != NO_TAG).any()):
        return False
    chunks = topic.index.chunks
    if (chunks and int(ts[0]) < chunks[-1].newest_ts) or (ts[1:] < ts[:-1]).any():
        return False
    columns = rows.offsets[part], rows.lengths[part], rows.sizes[part]
    topic.index.append_rows(first, rows.file_id, *columns, ts, rows.flags[part], None)
    return True


def add_rows(topic: Topic, rows: RowColumns) -> bool:
    """Enter the rows that are new and above the floors; return whether there are any."""
    index = topic.index
    new = int(np.searchsorted(rows.seqs, np.uint64(max(index.last_seq, topic.floors.dead_through)), "right"))
    if new == len(rows.seqs):
        return False
    if _add_consecutive(topic, rows, new, len(rows.seqs)):
        return True
    part = slice(new, None)
    seqs = rows.seqs[part]
    file_ids = np.full(len(seqs), rows.file_id, np.uint32)
    columns = SelectedRows(
        seqs, file_ids, rows.offsets[part], rows.lengths[part], rows.sizes[part], rows.flags[part], rows.ts[part]
    )
    tags: list[bytes | None] = []
    if len(rows.tag_table):
        table = rows.tag_table
        tags = [None if number == NO_TAG else table[number] for number in rows.tags[part].tolist()]
    index.add_scattered(seqs, rows.file_id, columns, rows.ts[part], tags)
    return True


def _zeros(like: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.zeros(len(like), np.uint64)

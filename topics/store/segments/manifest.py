"""The manifest: the segments and packs in use, which hold what is not only in the log.

It is the checkpoint's book-keeping. As JSON it is in the store's part of a snapshot
(`store_part.py`). A file that no snapshot lists is left over from a crash.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

from topics.common.bounded_steps import result_of
from topics.common.id_blocks import IdDict
from topics.store.format.catalog import SEQ_MAX
from topics.store.layouts.directory_names import HOT
from topics.store.segments.data_files import Pack, PackRun, Segment, Totals
from topics.store.segments.store_part import FILES_A_STEP, StorePart


class Manifest:
    """The files in use, by topic and by number."""

    def __init__(self) -> None:
        self.segments = IdDict[list[Segment]]()
        """Segments by topic, in seq order; the last one may be unsealed."""
        self.packs: dict[int, Pack] = {}
        self.runs = IdDict[list[tuple[Pack, PackRun]]]()
        """Runs by topic, in seq order, all of them below the topic's segments."""
        self.next_pack = 1

    def add_segment(self, segment: Segment) -> None:
        before = self.segments.setdefault(segment.topic_id, [])
        assert not before or before[-1].last_seq < segment.first_seq, "segments of a topic are in order"
        before.append(segment)

    def add_pack(self, pack: Pack) -> None:
        for _ in self._add_runs(pack):
            pass

    def drop_segment(self, segment: Segment) -> None:
        self.segments[segment.topic_id].remove(segment)
        if not self.segments[segment.topic_id]:
            del self.segments[segment.topic_id]

    def drop_runs(self, topic_id: int, numbers: set[tuple[int, int]] | None = None) -> None:
        """Remove runs of a topic: those named by (pack number, run number), or all."""
        kept = []
        for pack, run in self.runs.pop(topic_id) or ():
            if numbers is None or (pack.number, run.number) in numbers:
                del pack.runs[run.number]
                pack.dropped.append(run.number)
            else:
                kept.append((pack, run))
        if kept:
            self.runs[topic_id] = kept

    @property
    def all_copied(self) -> Mapping[int, int]:
        """By topic id what `copied_upto` returns, asked when it is needed."""
        return _CopiedUpto(self)

    def tail(self, topic_id: int) -> Segment | None:
        """Return the topic's segment that may still grow."""
        segments = self.segments.get(topic_id)
        return segments[-1] if segments and not segments[-1].sealed else None

    def sealed_totals(self, topic_id: int, before_seq: int = SEQ_MAX) -> Totals:
        """Return the sums over all segments except the tail, or over those before a seq."""
        of_topic = self.segments.get(topic_id, ())
        sealed = [segment for segment in of_topic if segment.sealed and segment.first_seq < before_seq]
        return Totals(sum(segment.records for segment in sealed), sum(segment.size for segment in sealed))

    def replace_tail(self, segment: Segment) -> None:
        """Replace the tail, which has grown or was sealed."""
        segments = self.segments[segment.topic_id]
        assert not segments[-1].sealed, "a sealed segment stays as it is"
        assert segments[-1].first_seq == segment.first_seq, "only the last segment grows"
        segments[-1] = segment

    def replace(self, replaced: Sequence[Segment], segment: Segment) -> None:
        """Replace adjacent sealed segments by one with their range of seqs."""
        segments = self.segments[segment.topic_id]
        at = segments.index(replaced[0])
        assert segments[at : at + len(replaced)] == list(replaced), "adjacent segments of one topic"
        assert segment.sealed, "only the last segment of a topic grows"
        segments[at : at + len(replaced)] = [segment]

    def copied_upto(self, topic_id: int) -> int:
        """Return the highest seq in segments and packs.

        The log's records up to it were copied, or were dead.
        """
        segments, runs = self.segments.get(topic_id), self.runs.get(topic_id)
        return max(segments[-1].last_seq if segments else 0, runs[-1][1].last_seq if runs else 0)

    def all_segments(self) -> Iterator[Segment]:
        for segments in self.segments.values():
            yield from segments

    def topic_ids(self) -> Iterator[int]:
        """Yield the ids of topics with segments or runs, once each, few at a time.

        What changes meanwhile may be among them or not.
        """
        yield from self.segments
        yield from (topic_id for topic_id in self.runs if topic_id not in self.segments)

    def paths(self, tier: int) -> set[str]:
        """Return the paths of all data files in use in a tier, relative to its directory."""
        packs = {pack.path for pack in self.packs.values()} if tier == HOT else set()
        return {segment.path for segment in self.all_segments() if segment.tier == tier} | packs

    def paths_of(self, file_ids: set[int]) -> list[str]:
        """Return the paths of those of these files that are in use."""
        files: list[Segment | Pack] = [*self.all_segments(), *self.packs.values()]
        return [file.path for file in files if file.file_id in file_ids]

    @classmethod
    def of(cls, part: StorePart) -> Manifest:
        """Return the manifest of a snapshot."""
        return result_of(cls.of_steps(part))

    @classmethod
    def of_steps(cls, part: StorePart) -> Generator[None, None, Manifest]:
        """Return the manifest of a snapshot, in bounded steps."""
        manifest = cls()
        segments = sorted(part.segments, key=lambda segment: (segment.topic_id, segment.first_seq))
        done = 0
        for segment in segments:
            manifest.add_segment(segment)
            done += 1
            if done % FILES_A_STEP == 0:
                yield
        for pack in sorted(part.packs, key=lambda pack: pack.number):
            for _ in manifest._add_runs(pack):
                done += 1
                if done % FILES_A_STEP == 0:
                    yield
        yield
        for some in manifest.runs.lists():
            for runs in some:
                if len(runs) > 1:
                    runs.sort(key=lambda entry: entry[1].first_seq)
            yield
        return manifest

    def _add_runs(self, pack: Pack) -> Iterator[None]:
        """Add a pack, a run a step."""
        self.packs[pack.number] = pack
        self.next_pack = max(self.next_pack, pack.number + 1)
        for run in pack.runs.values():
            self.runs.setdefault(run.topic_id, []).append((pack, run))
            yield


class _CopiedUpto(Mapping[int, int]):
    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def __getitem__(self, topic_id: int) -> int:
        if topic_id not in self._manifest.segments and topic_id not in self._manifest.runs:
            raise KeyError(topic_id)
        return self._manifest.copied_upto(topic_id)

    def __iter__(self) -> Iterator[int]:
        return self._manifest.topic_ids()

    def __len__(self) -> int:
        return sum(1 for _ in self)

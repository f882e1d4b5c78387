"""The metrics page: names, types and labels of contract section 12.3, by prometheus-client."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from topics import __version__
from topics.common.histograms import Histogram
from topics.config import DURABILITIES
from topics.engine.readers.reader_results import ReaderState
from topics.engine.scheduling.scheduler import LoadStats
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import EngineStats, TopicState
from topics.http.lane.lane import REASONS, Lane
from topics.http.plan.answered import Answered
from topics.http.plan.in_flight import InFlight
from topics.http.relay.relayed_head import RelayedRoute
from topics.http.spanning.summed_pages import SHOWN
from topics.http.streams.open_streams import OpenStreams
from topics.loop.loop import Loop
from topics.server.access_log_file import AccessLogFile
from topics.server.backend import Backend
from topics.server.cores.core_metrics import core_families
from topics.server.cores.neighbours import Neighbours
from topics.server.process_numbers import ProcessNumbers
from topics.store.archive.archiver import NO_ARCHIVE, ArchiveStats
from topics.store.backup.backup_counters import BackupCounters
from topics.store.checkpoint.checkpoint_counters import CheckpointCounters
from topics.store.recovery.recovery_counters import RecoveryCounters
from topics.store.wal.counters import FSYNC_BUCKETS_US, LogCounters

_TOPICS_A_PIECE = 200
_SECOND_NS = 1_000_000_000
_FASTEST, _SLOWEST = 14, 35
"""The buckets of answers with bounds of their own, 16 us to 34 s: one for each doubling."""
_UPTIME = re.compile(rb"^(# (?:HELP|TYPE) )?topics_uptime_ms_total ", re.MULTILINE)
NO_LOAD = LoadStats(0.0, 0, 0, 0, {})
NO_ENGINE = EngineStats(0, dict.fromkeys(DURABILITIES, 0), 0, 0, 0, 0)


class MeasuredService(Protocol):
    """The parts of the service that the page shows."""

    streams: OpenStreams
    in_flight: InFlight
    answered: Answered
    refused_total: int
    parse: Histogram
    append: Histogram


class MetricsValues:
    """Numbers of one instant, or the zeros of an empty server during recovery.

    leases: leases in flight, counted one queue after the other.
    """

    def __init__(
        self, backend: Backend | None, *, ready: bool, progress: float, uptime_ms: int, started_ms: int = 0
    ) -> None:
        self.ready = ready
        self.progress = progress
        self.uptime_ms = uptime_ms
        self.started_ms = started_ms
        self.backups = BackupCounters() if backend is None else backend.backups
        self.backend = backend
        self.engine = NO_ENGINE if backend is None else backend.engine.stats()
        self.leases = 0
        self.log = LogCounters() if backend is None else backend.log.counters
        self.checkpoints = CheckpointCounters() if backend is None else backend.checkpoints
        self.archive = NO_ARCHIVE if backend is None else backend.archive
        self.recovery = RecoveryCounters() if backend is None else backend.recovery
        self.checksum_failures = 0 if backend is None else backend.checksum_failures
        self.queue_depth = 0 if backend is None else backend.log.queue_depth
        self.read_only = backend is not None and bool(backend.log.read_only)
        self.disk_full = backend is not None and backend.log.disk_full


class ServerMetrics:
    """Renders the page on request, in small pieces; other work may run between two pieces."""

    def __init__(  # noqa: PLR0917 - what it shows
        self,
        loop: Loop,
        service: MeasuredService,
        requests: Histogram,
        lane: Lane | None,
        snapshot: Callable[[], MetricsValues],
        access_log: AccessLogFile | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        self._loop = loop
        self._access_log = access_log
        self._neighbours = neighbours
        self._build = {"version": __version__, "python": platform.python_version(), "io": loop.ring.name}
        self._lane = lane
        self._service = service
        self._requests = requests
        self._snapshot = snapshot

    def text(self, within: Prefixes, process: ProcessNumbers | None = None) -> Iterator[bytes]:
        """Yield the page in Prometheus text format 0.0.4, piece by piece.

        within: the families by topic show only these topics. process: None where it is unknown.
        """
        now = self._snapshot()
        yield from _count_leases(now)
        for family in self._families(now):
            yield _rendered(family)
        for family in _answer_families(self._service.answered, self._lane):
            yield _rendered(family)
        for family in _access_log_families(self._access_log):
            yield _rendered(family)
        for family in core_families(self._neighbours, now.engine):
            yield _rendered(family)
        yield _rendered(InfoMetricFamily("topics_build", "The build that runs", self._build))
        for family in _process_families(now, process):
            yield _rendered(family)
        for family in _mirror_families(now, within):
            yield _rendered(family)
        yield from _topic_families(now, within)
        yield from _reader_families(now, within)

    def json(self) -> Iterator[bytes]:
        """Yield the short form: its last piece is the JSON, and the others are empty."""
        now = self._snapshot()
        yield from _count_leases(now)
        engine, log = now.engine, now.log
        shown: dict[str, Any] = {"topics": engine.topics}
        shown |= {f"topics_{name}": engine.topics_by_class[name] for name in DURABILITIES}
        shown |= {
            "routers": engine.routers,
            "records_live": engine.records_live,
            "bytes_live": engine.bytes_live,
            "queue_topics": engine.queues,
            "queue_leases_in_flight": now.leases,
            "sse_connections": self._service.streams.slots.of_clients,
            "watch_sessions": len(self._service.streams.sessions),
            "ready": now.ready,
            "replay_progress": now.progress,
            "uptime_ms": now.uptime_ms,
            "wal": {
                "fsyncs": log.fsyncs,
                "frames": log.frames,
                "batches": log.batches,
                "bytes_written": log.bytes_written,
                "rotations": log.rotations,
                "queue_depth": now.queue_depth,
                "queue_depth_peak": log.queue_depth_peak,
                "submit_full_total": log.submit_full,
                "read_only": now.read_only,
                "fsync_count": log.fsyncs,
                "fsync_micros_total": log.fsync_us_sum,
            },
        }
        yield msgspec.json.encode(shown)

    def _families(self, now: MetricsValues) -> Iterator[Metric]:
        """Yield the families of the whole server."""
        yield from _engine_families(now)
        yield from self._stream_families()
        yield from _load_families(now)
        yield from _log_families(now)
        yield from _checkpoint_families(now.checkpoints)
        yield from _archive_families(now.archive)
        yield from _damage_families(now)
        yield from _backup_families(now.backups)
        yield from _second_families(now, self._stage_histograms(now))
        yield _stages(self._stage_histograms(now))
        yield CounterMetricFamily(
            "topics_http_requests_total", "Requests handed to a handler", self._service.in_flight.of_clients
        )
        yield CounterMetricFamily(
            "topics_http_refused_total", "Requests answered 4xx or 5xx", self._service.refused_total
        )
        yield from _lane_families(self._lane)
        numbers = {**self._loop.stats().numbers(), "polls": self._loop.ring.polls}
        for name, number in numbers.items():
            yield CounterMetricFamily(f"topics_loop_{name}", f"{name} of the event loop", number)

    def _stream_families(self) -> Iterator[Metric]:
        streams = self._service.streams
        open_streams, sessions = streams.slots.of_clients, len(streams.sessions)
        yield GaugeMetricFamily("topics_sse_connections", "Open watch and work streams and WebSockets", open_streams)
        yield GaugeMetricFamily("topics_watch_sessions", "Live watch sessions", sessions)

    def _stage_histograms(self, now: MetricsValues) -> dict[str, Histogram]:
        stages: dict[str, Any] = dict(self._loop.stats().stages())
        service = self._service
        stages |= {"requests": self._requests, "parse": service.parse, "append": service.append}
        backend = now.backend
        if backend is not None:
            log = backend.log.counters
            stages |= {"commit": log.commit, "answer": log.answer, "sync": log.sync, "seal": now.checkpoints.seal}
        return stages


def _count_leases(now: MetricsValues) -> Iterator[bytes]:
    """Set `leases`; yield an empty piece at each step."""
    for leases in now.backend.engine.leases_in_flight() if now.backend is not None else ():
        now.leases += leases
        yield b""


class _One(Collector):
    """A collector of a single family at a time, because a registry renders all its collectors."""

    def __init__(self) -> None:
        self.family: Metric | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return (self.family,) if self.family is not None else ()


_ONE = _One()
_REGISTRY = CollectorRegistry(auto_describe=False)
_REGISTRY.register(_ONE)


def _rendered(family: Metric) -> bytes:
    _ONE.family = family
    page: bytes = generate_latest(_REGISTRY)
    # The library appends _total to the name of each counter; the contract's uptime has no suffix.
    return _UPTIME.sub(rb"\1topics_uptime_ms ", page) if family.name == "topics_uptime_ms" else page


def _engine_families(now: MetricsValues) -> Iterator[Metric]:
    engine = now.engine
    yield GaugeMetricFamily("topics_topics", "Number of topics", engine.topics)
    by_class = GaugeMetricFamily("topics_topics_by_class", "Topics per commit class", labels=["class"])
    for name in DURABILITIES:
        by_class.add_metric([name], engine.topics_by_class[name])
    yield by_class
    yield GaugeMetricFamily("topics_routers", "Routers", now.engine.routers)
    yield GaugeMetricFamily("topics_records_live", "Live records over all topics", engine.records_live)
    yield GaugeMetricFamily("topics_bytes_live", "Accounted bytes of the live records", engine.bytes_live)
    yield CounterMetricFamily("topics_records_appended_total", "Records appended, copies too", engine.appended_records)
    yield CounterMetricFamily("topics_bytes_appended_total", "Accounted bytes of these records", engine.appended_bytes)
    yield GaugeMetricFamily("topics_queue_topics", "Queues", engine.queues)
    yield GaugeMetricFamily("topics_queue_leases_in_flight", "Unexpired leases over all queues", now.leases)
    yield CounterMetricFamily("topics_queue_claimed_total", "Jobs that were handed to workers", engine.claimed_jobs)
    yield CounterMetricFamily("topics_queue_acked_total", "Jobs that were completed", engine.acked_jobs)
    yield CounterMetricFamily("topics_queue_nacked_total", "Jobs that workers gave back", engine.nacked_jobs)
    yield CounterMetricFamily(
        "topics_queue_dead_lettered_total", "Jobs moved to a dead-letter topic", engine.dead_lettered_jobs
    )
    yield GaugeMetricFamily("topics_producers", "Producers known, over all topics", engine.producers)
    yield GaugeMetricFamily("topics_producer_parts", "Parts known of producers", engine.producer_parts)
    yield GaugeMetricFamily("topics_staged_bytes", "Bytes of pieces that wait for their parts", engine.staged_bytes)
    yield GaugeMetricFamily("topics_ready", "1 when the server serves", int(now.ready))
    yield GaugeMetricFamily("topics_recovery_progress", "Share of recovery done, 1 when ready", now.progress)
    yield CounterMetricFamily("topics_uptime_ms", "Milliseconds since the process started", now.uptime_ms)


def _load_families(now: MetricsValues) -> Iterator[Metric]:
    """Yield how deliveries keep up, and what is shed if they do not (docs/guides/scheduling.md)."""
    load = now.backend.engine.load() if now.backend is not None else NO_LOAD
    yield GaugeMetricFamily("topics_pressure", "How hard deliveries are pressed, 0 to 1", load.pressure)
    yield GaugeMetricFamily("topics_delivery_backlog", "Topics that wait for their delivery", load.backlog)
    latency_us = load.latency_ns / 1000
    yield GaugeMetricFamily("topics_delivery_latency_us", "Smoothed wait of a changed topic in us", latency_us)
    yield CounterMetricFamily("topics_writes_refused_total", "Writes refused for load", load.refused)
    taken = GaugeMetricFamily("topics_pressure_step", "1 while a step of the ladder is taken", labels=["step"])
    times = CounterMetricFamily("topics_pressure_steps_total", "How often a step was taken", labels=["step"])
    for name, (count, is_taken) in load.steps.items():
        taken.add_metric([name], int(is_taken))
        times.add_metric([name], count)
    yield from (taken, times)


def _topic_families(now: MetricsValues, within: Prefixes) -> Iterator[bytes]:
    """Yield the families by topic, for at most a thousand topics, to bound the page's size."""
    shown: list[TopicState] = []
    truncated = False
    while now.backend is not None and not truncated:
        after = shown[-1].name if shown else ""
        more = now.backend.engine.topic_states(after, within, _TOPICS_A_PIECE)
        truncated = len(shown) + len(more) > SHOWN
        shown += more[: SHOWN - len(shown)]
        if len(more) < _TOPICS_A_PIECE:
            break
        yield b""
    for name, text, value in (*_BY_TOPIC, _moving(now)):
        first = True
        for start in range(0, len(shown), _TOPICS_A_PIECE) or (0,):
            family = GaugeMetricFamily(name, text, labels=["topic"])
            for state in shown[start : start + _TOPICS_A_PIECE]:
                number = value(state)
                if number is not None:
                    family.add_metric([state.name], number)
            piece = _rendered(family)
            # only the first piece of a family has its head
            yield piece if first else piece.split(b"\n", 2)[2]
            first = False
    yield _rendered(
        GaugeMetricFamily(
            "topics_topic_metrics_truncated",
            f"1 if the per-topic families show only {SHOWN} topics",
            int(truncated),
        )
    )


def _reader_families(now: MetricsValues, within: Prefixes) -> Iterator[bytes]:
    """Yield the lag of named readers, of at most a thousand of them, to bound the page's size."""
    shown: list[tuple[str, ReaderState]] = []
    for topic, states in now.backend.engine.readers.states(within) if now.backend is not None else ():
        shown += [(topic, state) for state in states]
        if len(shown) >= SHOWN:
            break
        yield b""
    del shown[SHOWN:]
    for name, text, value in _BY_READER:
        family = GaugeMetricFamily(name, text, labels=["topic", "reader"])
        for topic, state in shown:
            family.add_metric([topic, state.name], value(state))
        yield _rendered(family)


_BY_READER: tuple[tuple[str, str, Callable[[ReaderState], float]], ...] = (
    ("topics_reader_lag", "Live records that a named reader has not committed", lambda state: state.lag_records),
    ("topics_reader_lag_ms", "Age of the oldest of them in ms", lambda state: state.lag_ms),
    ("topics_reader_lag_seconds", "The same in seconds", lambda state: state.lag_ms / 1000),
)
_TopicFamily = tuple[str, str, Callable[[TopicState], int | None]]
_BY_TOPIC: tuple[_TopicFamily, ...] = (
    ("topics_topic_head_seq", "Last seq assigned", lambda state: state.head_seq),
    ("topics_topic_earliest_seq", "Smallest live seq", lambda state: state.earliest_seq),
    ("topics_topic_records_live", "Live records", lambda state: state.count),
    ("topics_topic_bytes_live", "Accounted bytes of the live records", lambda state: state.bytes),
    ("topics_topic_queue_ready", "Jobs ready to be claimed", lambda state: state.queue and state.queue.ready),
    ("topics_topic_queue_in_flight", "Jobs leased", lambda state: state.queue and state.queue.in_flight),
)


def _moving(now: MetricsValues) -> _TopicFamily:
    def moving(state: TopicState) -> int | None:
        return None if state.queue is None or now.backend is None else now.backend.engine.moving_jobs(state.name)

    return "topics_topic_queue_moving", "Jobs on their way to a dead-letter topic of another core", moving


def _log_families(now: MetricsValues) -> Iterator[Metric]:
    log = now.log
    yield CounterMetricFamily("topics_wal_frames_total", "Log frames written", log.frames)
    yield CounterMetricFamily("topics_wal_batches_total", "Group-commit batches", log.batches)
    yield CounterMetricFamily("topics_wal_fsyncs_total", "Group-commit syncs", log.fsyncs)
    yield CounterMetricFamily("topics_wal_bytes_written_total", "Bytes of batches written", log.bytes_written)
    yield CounterMetricFamily("topics_wal_in_place_total", "Commits for which the loop waited", log.in_place)
    yield CounterMetricFamily("topics_wal_rotations_total", "Log files begun after the first", log.rotations)
    yield GaugeMetricFamily("topics_wal_queue_depth", "Submissions not yet committed", now.queue_depth)
    yield GaugeMetricFamily(
        "topics_wal_queue_depth_peak", "Most uncommitted submissions at a time", log.queue_depth_peak
    )
    yield CounterMetricFamily("topics_wal_submit_full_total", "Submissions refused for backlog", log.submit_full)
    held, most = (0, 0) if now.backend is None else (now.backend.log.bound.bytes, now.backend.log.bound.max_bytes)
    yield GaugeMetricFamily("topics_wal_held_bytes", "Bytes of the log that no checkpoint covers yet", held)
    yield GaugeMetricFamily("topics_wal_held_max_bytes", "Limit of topics_wal_held_bytes (0: unlimited)", most)
    unsynced = 0 if now.backend is None else now.backend.log.unsynced_bytes
    yield GaugeMetricFamily("topics_wal_unsynced_bytes", "Bytes written and not on stable storage", unsynced)
    refused = now.engine.log_refusals
    yield CounterMetricFamily("topics_wal_held_refused_total", "Appends and creations refused at that limit", refused)
    yield GaugeMetricFamily("topics_wal_read_only", "1 once the log refuses writes after a failure", int(now.read_only))
    yield GaugeMetricFamily("topics_disk_full", "1 while appends are refused for want of space", int(now.disk_full))
    bounds = [*map(str, FSYNC_BUCKETS_US), "+Inf"]
    latency = HistogramMetricFamily("topics_wal_fsync_latency_us", "Duration of the log's syncs in microseconds")
    buckets = list(zip(bounds, map(float, accumulate(log.fsync_buckets)), strict=True))
    latency.add_metric([], buckets, sum_value=log.fsync_us_sum)
    yield latency


def _checkpoint_families(checkpoints: CheckpointCounters) -> Iterator[Metric]:
    yield CounterMetricFamily("topics_checkpoints_total", "Checkpoints that ended well", checkpoints.done)
    yield CounterMetricFamily("topics_checkpoint_failures_total", "Checkpoints that failed", checkpoints.failed)
    yield CounterMetricFamily(
        "topics_checkpoint_copied_bytes_total", "Bytes copied from the log into segments", checkpoints.copied_bytes
    )
    failing = int(bool(checkpoints.error))
    yield GaugeMetricFamily("topics_checkpoint_failing", "1 while the last checkpoint failed", failing)
    yield GaugeMetricFamily("topics_checkpoint_last_ms", "Duration of the last good checkpoint", checkpoints.last_ms)
    yield CounterMetricFamily("topics_seals_total", "Segments and packs completed", checkpoints.seal.count)
    sizes = HistogramMetricFamily("topics_sealed_bytes", "Bytes of each segment and pack that was completed")
    sealed = checkpoints.sealed_bytes
    sizes.add_metric([], sealed.cumulative_bytes(), sum_value=sealed.total_ns)
    yield sizes
    cold = int(checkpoints.cold_failed)
    yield GaugeMetricFamily("topics_cold_failed", "1 once nothing moves to the cold directory after an error", cold)


def _archive_families(archive: ArchiveStats) -> Iterator[Metric]:
    yield GaugeMetricFamily("topics_archive_lag_ms", "Age of the end of the archive; 0: there is none", archive.lag_ms)
    yield GaugeMetricFamily("topics_archive_lag_seconds", "The same in seconds", archive.lag_ms / 1000)
    yield GaugeMetricFamily(
        "topics_archive_waiting_bytes", "Bytes of log files that wait to be archived", archive.waiting_bytes
    )
    yield GaugeMetricFamily("topics_archive_holes", "Holes of the archive", archive.holes)
    yield CounterMetricFamily("topics_archive_failures_total", "Steps and bases that failed", archive.failures)
    yield CounterMetricFamily("topics_archive_copied_bytes_total", "Bytes of log archived", archive.copied_bytes)


def _mirror_families(now: MetricsValues, within: Prefixes) -> Iterator[Metric]:
    """Yield the lag of each mirror, except to a key with prefixes: a mirror has all topics."""
    lags = now.backend.engine.archive.mirror_lags_ms() if now.backend is not None and not within else []
    for unit, text, per in (("ms", "Age of the newest time that a mirror has", 1), ("seconds", "The same", 1000)):
        family = GaugeMetricFamily(f"topics_archive_mirror_lag_{unit}", f"{text} in {unit}", labels=["mirror"])
        for name, lag_ms in lags:
            family.add_metric([name], lag_ms / per)
        yield family


def _damage_families(now: MetricsValues) -> Iterator[Metric]:
    recovery = now.recovery
    yield CounterMetricFamily("topics_checksum_failures_total", "Reads that found damaged bytes", now.checksum_failures)
    yield GaugeMetricFamily("topics_recovery_ms", "Duration of the start's recovery", recovery.ms)
    yield GaugeMetricFamily("topics_recovery_frames", "Frames that it read from the log", recovery.frames)
    yield GaugeMetricFamily("topics_recovery_cut_bytes", "Bytes that it cut off the log's end", recovery.cut_bytes)


def _backup_families(backups: BackupCounters) -> Iterator[Metric]:
    yield CounterMetricFamily("topics_backups_total", "Backups that ended well", backups.done)
    yield CounterMetricFamily("topics_backup_failures_total", "Backups that failed", backups.failed)
    yield CounterMetricFamily("topics_backup_copied_bytes_total", "Bytes that backups copied", backups.copied_bytes)
    yield GaugeMetricFamily(
        "topics_backup_last_success_timestamp_seconds",
        "When the last backup ended well; before the start, of when the newest of TOPICS_BACKUP_DIR is (0: none)",
        backups.done_ms / 1000,
    )


def _second_families(now: MetricsValues, stages: dict[str, Histogram]) -> Iterator[Metric]:
    """Yield times in seconds that the contract's names have in ms and us."""
    load = now.backend.engine.load() if now.backend is not None else NO_LOAD
    yield GaugeMetricFamily(
        "topics_delivery_latency_seconds", "Smoothed wait of a changed topic", load.latency_ns / _SECOND_NS
    )
    yield GaugeMetricFamily("topics_recovery_seconds", "Duration of the start's recovery", now.recovery.ms / 1000)
    yield GaugeMetricFamily(
        "topics_checkpoint_last_seconds", "Duration of the last good checkpoint", now.checkpoints.last_ms / 1000
    )
    times = HistogramMetricFamily("topics_stage_seconds", "Duration of a stage", labels=["stage"])
    for stage, histogram in stages.items():
        times.add_metric([stage], histogram.cumulative_seconds(), sum_value=histogram.total_ns / _SECOND_NS)
    yield times


def _answer_families(answered: Answered, lane: Lane | None) -> Iterator[Metric]:
    """Yield the answers by route: as many rows as routes were asked for, and statuses given."""
    if lane is not None:
        lane.count_answers()
    counts = CounterMetricFamily(
        "topics_http_responses_total", "Answers by route and status", labels=["method", "route", "status"]
    )
    times = HistogramMetricFamily(
        "topics_http_request_duration_seconds",
        "From a request to its answer, waits included",
        labels=["method", "route"],
    )
    for route, answers in answered.by_route.items():
        if isinstance(route, RelayedRoute):
            continue  # counted by the core that has answered
        labels = ["", "unknown"] if route is None else [route.method, route.pattern]
        for status, count in answers.statuses.items():
            if count:
                counts.add_metric([*labels, str(status)], count)
        if any(answers.times.buckets):
            buckets = answers.times.cumulative_seconds(_FASTEST, _SLOWEST)
            times.add_metric(labels, buckets, sum_value=answers.times.total_ns / _SECOND_NS)
    yield from (counts, times)


def _access_log_families(log: AccessLogFile | None) -> Iterator[Metric]:
    written, dropped = (0, 0) if log is None else (log.written, log.dropped)
    yield CounterMetricFamily("topics_access_log_lines_total", "Lines of the access log that were written", written)
    yield CounterMetricFamily(
        "topics_access_log_dropped_total", "Lines that its file did not take, or too slowly", dropped
    )


def _process_families(now: MetricsValues, process: ProcessNumbers | None) -> Iterator[Metric]:
    """Yield the numbers of the process under the names that all exporters use."""
    yield GaugeMetricFamily("process_start_time_seconds", "When the server began", now.started_ms / 1000)
    if process is None:
        return
    yield CounterMetricFamily("process_cpu_seconds_total", "CPU time, user and system", process.cpu_seconds)
    yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory", process.virtual_bytes)
    yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory", process.resident_bytes)
    if process.open_fds:
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors", process.open_fds)
    yield GaugeMetricFamily("process_max_fds", "Limit of open file descriptors", process.max_fds)


def _lane_families(lane: Lane | None) -> Iterator[Metric]:
    taken = 0 if lane is None else lane.taken
    yield CounterMetricFamily("topics_http_lane_requests_total", "Requests handled as columns of a pass", taken)
    missed = CounterMetricFamily(
        "topics_http_lane_missed_total", "Receives, or ends of some, left to the general path", labels=["reason"]
    )
    if lane is not None:
        for number, reason in REASONS.items():
            missed.add_metric([reason], lane.missed[number])
    yield missed


def _stages(histograms: dict[str, Histogram]) -> Metric:
    """Return the durations of a pass's stages."""
    family = HistogramMetricFamily("topics_stage_us", "Duration of a stage in microseconds", labels=["stage"])
    for stage, histogram in histograms.items():
        family.add_metric([stage], histogram.cumulative_us(), sum_value=histogram.total_ns / 1000)
    return family

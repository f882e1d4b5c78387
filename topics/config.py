"""All settings of the server in one frozen value.

Source of names and defaults: the wire contract, section 14. The values are raw; the last word of a
name is its unit. `cli/environment.py` makes a Config from a file, `TOPICS_*` variables and options.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from topics.errors import UsageError

WAL_SHARDS_MAX = 64
"""Most shards: more have no use, and two digits number their directories."""
_SEGMENT_BYTES_MAX = 1 << 31
_U32_MAX = (1 << 32) - 1
_U64_MAX = (1 << 64) - 1
RANGES = {
    "port": (0, 65_535),
    "access_log_every_ms": (1, 60_000),
    "access_log_bytes": (4096, 1 << 40),
    "head_timeout_ms": (100, 1 << 40),
    "idle_timeout_ms": (100, 1 << 40),
    "write_stall_timeout_ms": (100, 1 << 40),
    "gzip_level": (0, 9),
    "gzip_min_bytes": (1024, 1 << 40),
    "max_head_bytes": (256, 1 << 30),
    "max_head_fields": (4, 1 << 20),
    "max_backlog_bytes": (4096, 1 << 62),
    "max_log_bytes": (0, 1 << 62),
    "max_log_wait_ms": (0, 60_000),
    "max_unsynced_bytes": (0, 1 << 62),
    "listen_backlog": (0, 65_535),
    "keepalive_ms": (0, 32_767_000),
    "ws_publishes_in_flight": (1, 1 << 20),
    "h2_max_streams": (1, 65_535),
    "h2_stream_window_bytes": (65_535, (1 << 31) - 1),
    "h2_connection_window_bytes": (65_535, (1 << 31) - 1),
    "h2_ping_after_ms": (100, 1 << 40),
    "h2_ping_timeout_ms": (100, 1 << 40),
    "h2_reset_burst": (1, 1 << 30),
    "h2_resets_per_s": (1, 1 << 30),
    "h2_control_burst": (1, 1 << 30),
    "h2_controls_per_s": (1, 1 << 30),
    "h2_drain_bytes": (1, 1 << 40),
    "h2_drain_ms": (1, 1 << 40),
    "pressure_full_backlog": (1, 1 << 30),
    "pressure_full_latency_ms": (1, 1 << 30),
    "pressure_full_lag_ms": (1, 1 << 30),
    "coalesce_max_ms": (0, 10_000),
    "commit_window_max_us": (0, 1_000_000),
    "ring_entries": (8, 32_768),
    "ring_completions": (16, 65_536),
    "receive_buffers": (1, 32_768),
    "receive_buffer_bytes": (1, 1 << 24),
    "archive_every_ms": (10, 1 << 40),
    "archive_keep_bytes": (0, 1 << 62),
    "archive_base_every_ms": (0, 1 << 48),
    "archive_retain_ms": (0, 1 << 48),
    "archive_close_wait_ms": (0, 1 << 31),
    "archive_piece_bytes": (1 << 12, 1 << 23),
    "wal_shards": (0, WAL_SHARDS_MAX),
    "wal_file_bytes": (64 * 1024, 1 << 31),
    "wal_spare_files": (0, 1024),
    "commit_window_us": (0, 1_000_000),
    "commit_gather_us": (0, 1_000_000),
    "commit_in_place_max_us": (0, 1_000_000),
    "segment_max_bytes": (0, _SEGMENT_BYTES_MAX),
    # The runs of a topic, at most eight, become one file.
    "pack_run_bytes": (0, _SEGMENT_BYTES_MAX // 8),
    "disk_reserve_bytes": (0, 1 << 62),
    "router_delay_ms": (1, 60_000),
    "router_retry_ms": (1, 3_600_000),
    "max_batch_records": (0, 1_000_000),
    "max_limit": (0, 1_000_000),
    "max_claim": (0, 1_000_000),
    "max_attempts": (0, 1000),
    "max_reason_bytes": (0, 60_000),
    # A delay and a time of today make a number of 64 bits.
    "max_delay_ms": (0, 1 << 48),
    "max_ttl_ms": (0, 1 << 48),
    "max_watch_topics": (0, 1_000_000),
    "max_wait_topics": (0, 1_000_000),
    # A creation looks up as many beginnings of a name at most as it has characters.
    "max_prefixes": (0, 10_000),
    # A pass of the loop looks at as many chunks of an index.
    "max_last": (0, 50_000),
    # One pass of the loop looks at the tags of as many records.
    "max_filter_records": (1_000, 4_000_000),
    "max_record_bytes": (0, 1 << 30),
    "max_meta_bytes": (0, 1 << 30),
    "max_meta_keys": (0, _U32_MAX),
    "max_tag_bytes": (0, 60_000),
    "max_node_bytes": (0, 60_000),
    "max_nodes": (0, 1_000_000),
    "max_idempotency_key_bytes": (0, 60_000),
    "max_producer_id_bytes": (0, 30_000),
    "producer_epochs": (1, 4096),
    "default_limit": (0, 1_000_000),
    "max_wait_ms": (0, _U32_MAX),
    "default_batch_bytes": (0, 1 << 40),
    "max_batch_bytes": (0, 1 << 40),
}
"""Smallest and largest value by setting.

The bounds are what fields of 16 and 32 bits in the formats, the kernel and C hold; others reject
values that can only be mistakes.
"""

_ZERO_IS_THE_MOST = (
    "max_batch_records",
    "max_record_bytes",
    "max_meta_bytes",
    "max_meta_keys",
    "max_tag_bytes",
    "max_node_bytes",
    "max_nodes",
    "max_idempotency_key_bytes",
    "max_producer_id_bytes",
    "max_limit",
    "default_limit",
    "max_wait_ms",
    "default_batch_bytes",
    "max_batch_bytes",
    "max_claim",
    "max_watch_topics",
    "max_wait_topics",
    "max_prefixes",
    "max_last",
)
"""Settings whose 0 stands for the largest possible value (wire contract, section 14)."""

OPTIONAL = ("sync_every_ms",)
"""Settings that may be None, for never. The variable's text is `none`."""
SECRET = ("api_keys",)
"""Settings whose values no message shows."""
DURABILITIES = ("ephemeral", "memory", "disk", "fsync")
"""Commit classes, weakest first."""
CHOICES = {
    "io": ("auto", "uring", "portable"),
    "commit": ("auto", "link", "direct", "dsync"),
    "segment_codec": ("none", "zstd"),
    "http_parser": ("auto", "h11", "httptools"),
    "http_lane": ("auto", "off"),
    "ui": ("on", "off"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
    "access_log_format": ("combined", "json"),
    "durability": DURABILITIES,
}
"""Settings that have one of some texts. `LogSettings` has them for type checkers, too."""

_SPIN_US_MAX = 1_000_000
_CORES_MAX = 1024
"""The number of slots of topics, which cores share."""
_BLOCK_BYTES = 4096
_LOG_BYTES_LEAST = 4096
"""Lowest bound of the log, times the shards: some hundred bytes of each stay after a checkpoint,
and a bound below them would refuse appends for ever.
"""

ON, OFF = ("true", "1"), ("false", "0", "")
"""The texts of a boolean variable. Any other text means off, and the server's log says so."""


def is_on(text: str) -> bool:
    """Return the value of a boolean variable."""
    return text.strip() in ON


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one server, or of one opened log."""

    # --- network
    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str = ""
    api_keys: str = field(default="", repr=False)
    """secret[:scopes[:prefixes]], between commas. A running server has dropped the text."""
    api_keys_file: str = ""
    """File with more keys, one per line; read again on SIGHUP."""
    core_dumps: bool = False
    """Whether a server that crashes may leave a core dump, with keys and records in it."""
    allow_insecure_no_auth: bool = False
    probe_auth: bool = False
    """Whether health and readiness need a valid key, too."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may write and open streams."""
    host_check: bool = True
    """Refuse a foreign Host on loopback, and state-changing requests of other sites' pages."""
    http_parser: str = "auto"
    """auto, h11 or httptools."""
    ui: str = "on"
    """on, or off: the pages `/` and `/ui` do not exist."""
    http_lane: str = "auto"
    """auto: handle plain requests of a pass as columns; off: one by one."""
    head_timeout_ms: int = 60_000
    idle_timeout_ms: int = 75_000
    write_stall_timeout_ms: int = 30_000
    min_body_bytes_per_s: int = 240
    """Lowest rate of an arriving request body, over ten seconds; 0: no limit."""
    shutdown_grace_ms: int = 10_000
    max_connections: int = 0
    """0: derived from RLIMIT_NOFILE."""
    max_head_bytes: int = 65_536
    max_head_fields: int = 100
    send_high_water_bytes: int = 1 << 20
    """Unsent bytes above which nothing more is read from a connection."""
    send_low_water_bytes: int = 1 << 18
    stream_high_water_bytes: int = 65_536
    """Unsent bytes above which nothing more is read for a stream's client."""
    stream_low_water_bytes: int = 16_384
    ws_max_message_bytes: int = 64 << 20
    """Longer WebSocket messages close their connection with 1009; 0: no limit."""
    ws_max_frame_bytes: int = 16 << 20
    """Longer frames of a message close their connection with 1009, too; 0: no limit."""
    ws_pass_frames: int = 256
    """Frames of all WebSockets handled in a pass of the loop; 0: no limit."""
    ws_max_subscriptions: int = 10_000
    """Subscriptions of one WebSocket; 0: no limit."""
    ws_max_request_id_bytes: int = 1024
    """Bytes of a command's `request_id`, which every reply repeats; 0: no limit."""
    ws_publishes_in_flight: int = 256
    """Publishes of a WebSocket that wait for their commit at a time; later input waits unread."""
    gzip_level: int = 1
    """Level of answers to clients that accept gzip; 0: never compressed."""
    gzip_min_bytes: int = 1024
    gzip_max_bytes: int = 256 << 10
    """Larger answers are sent uncompressed: compression would block the loop for milliseconds."""
    metrics_share_ms: int = 100
    """Greatest age of a metrics page that scrapes share after a burst of ten; 0: no sharing."""
    max_client_bytes: int = 1 << 30
    """Bytes held for all clients, in unread answers and unfinished bodies; 0: no limit.

    Above it the connections that hold most are closed.
    """
    listen_backlog: int = 1024
    keepalive_ms: int = 60_000
    """Silence of a peer after which TCP probes it; it is lost after as long again. 0: never."""
    h2_max_streams: int = 1024
    """Concurrent requests of one HTTP/2 connection."""
    h2_stream_window_bytes: int = 1 << 20
    h2_connection_window_bytes: int = 4 << 20
    h2_ping_after_ms: int = 20_000
    h2_ping_timeout_ms: int = 20_000
    h2_reset_burst: int = 1000
    """Requests that an HTTP/2 peer may reset in a burst."""
    h2_resets_per_s: int = 100
    """Requests that it may reset on average; more end the connection (rapid reset)."""
    h2_control_burst: int = 10_000
    h2_controls_per_s: int = 2000
    """Control frames on average, as for resets.

    They are PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA and unknown frames.
    """
    h2_drain_bytes: int = 128 << 20
    """Bytes of request bodies that are dropped after their answers, before the streams are reset.

    They are counted over all streams of a connection that still send a body.
    """
    h2_drain_ms: int = 10_000
    """Time for which a stream's body is dropped after its answer, before the stream is reset."""

    # --- logs
    log_level: str = "info"
    """debug, info, warning or error: the least level of what a server logs."""
    log_format: str = "text"
    """text, or json: an object on each line."""
    access_log: str = ""
    """File that gets a line for every answer, "-" for standard output; "": there is no such log."""
    access_log_format: str = "combined"
    """combined, as other servers write it, or json."""
    access_log_every_ms: int = 100
    """Interval of its writes."""
    access_log_bytes: int = 1 << 20
    """Bytes of lines that wait for the file; further lines are dropped and counted."""

    # --- ring
    io: str = "auto"
    """auto, uring or portable."""
    ring_entries: int = 512
    ring_completions: int = 4096
    receive_buffers: int = 512
    receive_buffer_bytes: int = 16_384
    spin_us: str = "auto"
    """Time to poll before a wait sleeps, while waits are that short (io_uring); "0": no polling.

    auto: the server polls while it serves one client at a time and a core is idle.
    """

    # --- cores
    cores: str = "1"
    """Engines of a server, each a process with its own topics; auto: one for each CPU. Only
    `topics serve` starts more than one.
    """
    pin_cores: bool = True
    """Whether the process of each core is bound to a CPU, if there are enough of them."""

    # --- storage
    data_dir: str = "./topics-data"
    cold_dir: str = ""
    backup_dir: str = ""
    """Directory below which clients may have backups made; "": none."""
    archive_dir: str = ""
    """Directory to which the log is copied, for a restore to any time; "": there is no archive."""
    archive_every_ms: int = 1000
    """Interval of these copies: what is newer may be lost with the data directory."""
    archive_keep_bytes: int = 1 << 30
    """Bytes of log files that wait to be archived; more are given up: the archive has a hole."""
    archive_base_every_ms: int = 86_400_000
    """Interval of backups in the archive, from which a restore begins; 0: only those it needs."""
    archive_retain_ms: int = 0
    """Age of what is removed from the archive; 0: all of it is kept."""
    archive_close_wait_ms: int = 10_000
    """Longest time for which a close waits for the archive and for a backup in progress."""
    archive_piece_bytes: int = 1 << 20
    """Most bytes of the archive in one answer."""
    wal_shards: int = 1
    wal_file_bytes: int = 64 << 20
    """Rounded up to whole blocks of 4096."""
    wal_spare_files: int = 1
    commit: str = "auto"
    """auto, link, direct or dsync."""
    sync_every_ms: int | None = 1000
    """Longest time until bytes that nothing waits for are synced; None: no sync by time."""
    durability: str = "disk"
    """The class of topics that writes without a config create."""
    commit_window_us: int = 0
    """Time that a batch may wait for more records; 0: until the previous commit has ended."""
    commit_gather_us: int = 300
    """Time that a synced group waits after the previous commit; 0: never.

    It waits only while that increases the records per second.
    """
    commit_in_place_max_us: int = 20_000
    """Longest time of a write that is committed while the loop waits; 0: none is.

    These are lone writes of the only active connection, writes of up to 1 MiB without a sync
    waiter, and synced groups where that proves faster. After one that took longer, the ring commits
    for a while.
    """
    hot_tail_bytes: int = 64 << 20
    prefetch_bytes: int = 32 << 20
    """Memory for parts of files that are prefetched for readers of old records; 0: none are."""
    checkpoint_wal_bytes: int = 256 << 20
    """A checkpoint starts when this many bytes of log are not yet in segments."""
    checkpoint_every_ms: int = 60_000
    checkpoint_bytes_per_pass: int = 1 << 20
    checkpoint_topics_per_pass: int = 256
    checkpoint_us_per_pass: int = 1000
    """Time that a checkpoint copies before other work gets twice as long; 0: no limit."""
    segment_max_events: int = 10_000
    segment_bulk: int = 4
    """Factor on a new segment's records if a checkpoint has more records of its topic to copy."""
    segment_max_bytes: int = 64 << 20
    segment_max_age_ms: int = 3_600_000
    pack_run_bytes: int = 65_536
    """A topic with fewer bytes to checkpoint shares a pack file."""
    compact_below: float = 0.5
    """A sealed segment or pack of which a smaller share lives is written anew; 0: none is."""
    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0
    hot_retain_ms: int = 0
    """Age of the newest record at which a sealed segment moves to the cold directory; 0: none."""
    segment_codec: str = "none"
    """none, or zstd: how segments are stored in the cold directory from then on."""
    disk_reserve_bytes: int = 16 << 20
    disk_low_water_bytes: int = 64 << 20
    max_backlog_bytes: int = 256 << 20
    max_log_bytes: int = 1 << 30
    """Bytes of log not yet in a checkpoint: from half of it on commits are delayed; 0: no limit.

    At it appends are refused. Less than 4096 for each shard would refuse all of them.
    """
    max_log_wait_ms: int = 1000
    """Longest delay of a commit because of `max_log_bytes`."""
    max_pendings: int = 10_000
    """Appends of the library's `append_nowait` that have no answer yet; 0: no limit."""
    max_held_files: int = 16
    """Files that a checkpoint gave up and that stay for reads of the library which no thread has
    begun; reads of older ones fail. 0: no limit.
    """
    max_unsynced_bytes: int = 0
    """Bytes acknowledged and not synced: a commit that would exceed it is synced; 0: no limit."""

    # --- routers
    router_delay_ms: int = 10
    """Time that records wait to be forwarded together, while no reader waits for the destination.

    It is five times as long while records keep arriving.
    """
    router_retry_ms: int = 100
    """Interval at which a router without room for its records tries again."""
    router_keep_bytes: int = 16 << 20
    """Bytes of acknowledged jobs that a router without room holds; 0: no limit.

    Further acks are refused.
    """

    # --- load
    delivery_budget_us: int = 5000
    """Time for deliveries in a pass; the rest waits for the next passes. 0: no limit."""
    pass_requests_us: int = 5000
    """Time within which requests of a pass begin; others wait for the next passes. 0: no limit."""
    pass_read_bytes: int = 1 << 20
    """Bytes that diffs of a pass read before the others wait for the next passes; 0: no limit."""
    pass_body_bytes: int = 1 << 20
    """Bytes of longer bodies that a pass unpacks, scans and frames, in all; 0: no limit."""
    pass_search_steps: int = 64
    """Steps of all deletes by tag in a pass; 0: no limit.

    A step searches a chunk of 8192 records, or 256 tags in one.
    """
    pressure_full_backlog: int = 1000
    """Topics waiting for their delivery at which the pressure is 1."""
    pressure_full_latency_ms: int = 25
    """Waiting time of deliveries at which the pressure is 1."""
    pressure_full_lag_ms: int = 250
    """Lateness of a timer at which the pressure is 1."""
    pressure_refuse_after_ms: int = 1000
    """Time for which the pressure must be nearly 1 before writes are refused."""
    coalesce_max_ms: int = 20
    commit_window_max_us: int = 10_000
    """Largest `commit_window_us` under pressure."""
    backpressure: bool = True
    """Refuse writes with 429 as the last step of the ladder."""

    # --- limits
    max_body_bytes: int = 64 << 20
    max_command_bytes: int = 1 << 20
    """Most bytes of a body of other requests than writes, parsed in one pass; 0: max_body_bytes."""
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_watch_sessions_per_key: int = 5000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_total_bytes: int = 0
    max_batch_records: int = 10_000
    max_record_bytes: int = 1 << 20
    max_meta_bytes: int = 16_384
    max_meta_keys: int = 64
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    max_nodes: int = 1000
    """Names in a reader's `node`."""
    max_idempotency_key_bytes: int = 256
    max_producer_id_bytes: int = 256
    max_readers: int = 1000
    """Named readers of a topic."""
    max_reader_pages: int = 1000
    """Pages of a named reader that are out."""
    max_producers: int = 100_000
    """Producers over all topics, with those of which only the newest epoch is remembered."""
    max_producer_parts: int = 1_000_000
    """Remembered parts over all topics, 22 bytes each."""
    producer_epochs: int = 16
    """Number of a producer's newest epochs whose parts a topic remembers."""
    producer_silence_ms: int = 604_800_000
    """Time after its last append at which only a producer's newest epoch is remembered."""
    max_part_bytes: int = 32 << 20
    """Accounted bytes of the records of a producer's part in several pieces."""
    max_part_records: int = 100_000
    max_part_pieces: int = 1000
    """Pieces of a part: the last one causes work for each piece before it."""
    max_staged_bytes: int = 1 << 30
    """Bytes of all pieces that wait for the last one of their part."""
    staged_ttl_ms: int = 3_600_000
    """Time after the newest piece of a part at which its pieces are dropped."""
    max_limit: int = 1000
    default_limit: int = 256
    max_wait_ms: int = 30_000
    default_batch_bytes: int = 1 << 20
    max_batch_bytes: int = 8 << 20
    max_claim: int = 1000
    max_claim_bytes: int = 8 << 20
    """Total bytes of the jobs that one claim returns, always at least one job; 0: no limit."""
    max_attempts: int = 8
    """Ended leases that are known of a job; 0: none."""
    max_reason_bytes: int = 1024
    """Bytes of a nack's `reason`; 0: no nack may give one."""
    max_delay_ms: int = 2_592_000_000
    """The longest `delay_ms` of a record; 0: no record may have one."""
    max_ttl_ms: int = 315_360_000_000
    """The longest `ttl_ms` of a record; 0: no record may have one."""
    max_watch_topics: int = 256
    max_wait_topics: int = 256
    max_prefixes: int = 64
    """Prefixes of names in a watch or a wait, and of all subscriptions of a WebSocket."""
    max_last: int = 10_000
    """Records that a read may ask for from the end, by `from: {"last": n}`."""
    max_filter_records: int = 1_000_000
    """Records whose tags one read with a filter looks at; a hundredth as many if it has to read the
    records themselves, for their nodes.
    """
    max_waits: int = 10_000
    max_waited_topics: int = 262_144
    """Topics in all waits, counted each time that one is named, 250 bytes each."""
    test_min_heartbeat_ms: int = 1000
    """Lowers the floor of heartbeat_ms, for tests."""

    # --- checks that cost
    verify: bool = is_on(os.environ.get("TOPICS_VERIFY", ""))
    """Compare the engine's counters with the state that they count: see topics/engine/verify.py.

    It happens at the end of each pass and at the close. The variable sets the library's default,
    too, so that a program's tests can run with it.
    """

    def __post_init__(self) -> None:
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default:
                object.__setattr__(self, name, checked(name, value))
        for low, high in (
            ("send_low_water_bytes", "send_high_water_bytes"),
            ("stream_low_water_bytes", "stream_high_water_bytes"),
            ("ring_entries", "ring_completions"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise UsageError(f"({getattr(self, low)}) is above {high} ({getattr(self, high)}): use less", low)
        for name in _ZERO_IS_THE_MOST:
            if not getattr(self, name):
                object.__setattr__(self, name, RANGES[name][1])
        object.__setattr__(self, "wal_file_bytes", -(-self.wal_file_bytes // _BLOCK_BYTES) * _BLOCK_BYTES)
        log_bytes, least = self.max_log_bytes, _LOG_BYTES_LEAST * max(1, self.wal_shards)
        if 0 < log_bytes < least:
            raise UsageError(
                f"is {log_bytes}: use 0 (no limit), or {least} at least (wal_shards times 4096)", "max_log_bytes"
            )
        if self.archive_dir:
            self._check_archive()
        for name in ("cold_dir", "backup_dir", "archive_dir"):
            if getattr(self, name):
                _check_directory(name, getattr(self, name))
        if self.receive_buffers & (self.receive_buffers - 1):
            raise UsageError(f"is {self.receive_buffers}: use a power of two", "receive_buffers")

    def _check_archive(self) -> None:
        least = 2 * self.wal_file_bytes
        if self.archive_keep_bytes < least:
            raise UsageError(
                f"is {self.archive_keep_bytes}: use {least} at least (two files of wal_file_bytes), because each file "
                "of the log waits for a moment",
                "archive_keep_bytes",
            )
        archive = os.path.realpath(self.archive_dir)
        for mine in filter(None, (self.data_dir, self.cold_dir)):
            if is_in(archive, mine):
                raise UsageError(
                    f"is {self.archive_dir!r}, in {mine}, and is lost with it: name a directory elsewhere",
                    "archive_dir",
                )
        if self.backup_dir and is_in(self.backup_dir, archive):
            raise UsageError(f"is {self.backup_dir!r}, in the archive {self.archive_dir}: use another", "backup_dir")
        if archive != os.path.abspath(self.archive_dir):  # files are not opened through links
            object.__setattr__(self, "archive_dir", archive)


def _check_directory(name: str, path: str) -> None:
    """Check that nothing but directories is on a path. Raises: UsageError."""
    if "://" in path:
        raise UsageError(f"is {path!r}, and the server writes to a disk: name a directory", name)
    above = os.path.abspath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        what = "which is no directory" if above == os.path.abspath(path) else f"and {above} is no directory"
        raise UsageError(f"is {path!r}, {what}: name a directory", name)


def is_in(path: str, directory: str) -> bool:
    """Return whether a path is a directory or in it, links followed."""
    above = os.path.realpath(directory).rstrip("/")  # nothing of the root
    return f"{os.path.realpath(path)}/".startswith(f"{above}/")


def read_regular_file(path: str, most: int) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its mode.

    Raises: OSError, also for what is no regular file: a pipe may never say anything.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return file.read(most), mode


_DEFAULTS = {setting.name: setting.default for setting in fields(Config)}
_ORIGIN = re.compile(r"\*|null|(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[^/\s?#@]+", re.IGNORECASE)
"""An `Origin` that a browser may send, or any."""


def checked(name: str, value: object, *, show: Callable[[object], str] = repr) -> object:
    """Return a value of a setting as `Config` holds it: a list as a tuple, some numbers as text.

    show: returns a value as its source has it, for messages.
    Raises: UsageError, its type is not the default's, or it is outside of its range or choices.
    """
    default = _DEFAULTS[name]
    if name in {"spin_us", "cores"} and type(value) is int:
        value = str(value)  # a program has no reason to write a number as text
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"is {show(value)}: use a boolean", name)
    elif isinstance(default, int):
        low, high = RANGES.get(name, (0, _U64_MAX))
        if value is None and name in OPTIONAL:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            never = f", or {show(None)} for never" if name in OPTIONAL else ""
            raise UsageError(f"is {show(value)}: use a whole number, {low} to {high}{never}", name)
        if not low <= value <= high:
            free = " (a free one)" if name == "port" else ""
            raise UsageError(f"is {value}: use {low}{free} to {high}", name)
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"is {show(value)}: use a number from 0 to 1", name)
    elif isinstance(default, tuple):
        if isinstance(value, str) or not all(isinstance(part, str) for part in _parts(value)):
            raise UsageError(f"is {show(value)}: use a list of strings", name)
        parts = tuple(part for part in _parts(value) if isinstance(part, str))
        if name == "allowed_origins" and (wrong := [part for part in parts if not _ORIGIN.fullmatch(part)]):
            raise UsageError(
                f"holds {wrong[0]!r}: use origins as browsers send them, as https://app.example or "
                "http://localhost:8000, without a path and without the scheme's own port, or *",
                name,
            )
        return parts
    elif not isinstance(value, str):
        shown = "no string" if name in SECRET else show(value)
        choices = f", one of {', '.join(map(show, CHOICES[name]))}" if name in CHOICES else ""
        raise UsageError(f"is {shown}: use a string{choices}", name)
    elif "\0" in value:
        raise UsageError("holds a NUL: use text without one", name)
    elif name in CHOICES and value not in CHOICES[name]:
        raise UsageError(f"is {value!r}: use one of {', '.join(CHOICES[name])}", name)
    elif name == "spin_us" and value != "auto" and not (value.isdecimal() and int(value) <= _SPIN_US_MAX):
        raise UsageError(f"is {value!r}: use auto, or a number from 0 to {_SPIN_US_MAX}", name)
    elif name == "cores" and value != "auto" and not (value.isdecimal() and 1 <= int(value) <= _CORES_MAX):
        raise UsageError(f"is {value!r}: use auto, or a number from 1 to {_CORES_MAX}", name)
    return value


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, Iterable) else (None,)


def tiny_config(data_dir: str) -> Config:
    """Return a preset for tests, with bounds so small that a short run crosses each."""
    return Config(
        data_dir=data_dir,
        port=0,
        wal_file_bytes=256 * 1024,
        hot_tail_bytes=256 * 1024,
        prefetch_bytes=256 * 1024,
        checkpoint_wal_bytes=512 * 1024,
        max_log_bytes=64 << 20,
        segment_max_events=100,
        segment_bulk=1,
        segment_max_bytes=64 * 1024,
        pack_run_bytes=4096,
        disk_reserve_bytes=64 * 1024,
        disk_low_water_bytes=256 * 1024,
        receive_buffers=64,
        receive_buffer_bytes=4096,
        verify=True,
    )

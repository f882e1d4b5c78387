"""Every setting of the server in one frozen value. Source of names and defaults: the wire contract, section 14.

Raw values only; units are the last word of a name. `cli/environment.py` makes one of `TOPICS_*` variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from topics.errors import UsageError

WAL_SHARDS_MAX = 64
"""More are of no use; their directories are numbered with two digits."""
_SEGMENT_BYTES_MAX = 1 << 31
_U32_MAX = (1 << 32) - 1
_U64_MAX = (1 << 64) - 1
RANGES = {
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
    "spin_us": (0, 1_000_000),
    "wal_shards": (0, WAL_SHARDS_MAX),
    "wal_file_bytes": (64 * 1024, 1 << 31),
    "wal_spare_files": (0, 1024),
    "commit_window_us": (0, 1_000_000),
    "commit_gather_us": (0, 1_000_000),
    "commit_in_place_max_us": (0, 1_000_000),
    "segment_max_bytes": (0, _SEGMENT_BYTES_MAX),
    "pack_run_bytes": (0, _SEGMENT_BYTES_MAX // 8),  # a topic's runs, eight at most, become one file
    "disk_reserve_bytes": (0, 1 << 62),
    "router_delay_ms": (1, 60_000),
    "router_retry_ms": (1, 3_600_000),
    "max_batch_records": (0, 1_000_000),
    "max_limit": (0, 1_000_000),
    "max_claim": (0, 1_000_000),
    "max_watch_topics": (0, 1_000_000),
    "max_wait_topics": (0, 1_000_000),
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
"""What fields of 16 and 32 bits in the formats, the kernel and C take, and what would only be a slip of the pen."""

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
)
"""0 is no limit but what there can be (wire contract, section 14)."""

_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Config:
    """One server's (or one opened log's) settings."""

    # --- network
    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str = ""
    api_keys: str = field(default="", repr=False)
    """secret[:scopes[:prefixes]], between commas; a server that runs has forgotten them."""
    api_keys_file: str = ""
    """More of them, one a line; read again on SIGHUP."""
    core_dumps: bool = False
    """A server that crashes may leave one, with keys and records in it."""
    allow_insecure_no_auth: bool = False
    probe_auth: bool = False
    """Health and readiness need a valid key too."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    """Of pages elsewhere that may write and open streams."""
    host_check: bool = True
    """Refuse a foreign Host on loopback, and state-changing requests of other sites' pages."""
    http_parser: str = "auto"
    """auto, h11 or httptools."""
    http_lane: str = "auto"
    """auto: plain writes of a pass are handled as columns; off: one by one."""
    head_timeout_ms: int = 60_000
    idle_timeout_ms: int = 75_000
    write_stall_timeout_ms: int = 30_000
    min_body_bytes_per_s: int = 240
    """Of a request body that is arriving, over ten seconds; 0: any."""
    shutdown_grace_ms: int = 10_000
    max_connections: int = 0
    """0: derived from RLIMIT_NOFILE."""
    max_head_bytes: int = 65_536
    max_head_fields: int = 100
    send_high_water_bytes: int = 1 << 20
    send_low_water_bytes: int = 1 << 18
    stream_high_water_bytes: int = 65_536
    """Unsent bytes beyond which nothing more is read for a stream's client."""
    stream_low_water_bytes: int = 16_384
    ws_max_message_bytes: int = 64 << 20
    """A longer WebSocket message closes its connection with 1009. 0: any."""
    ws_max_frame_bytes: int = 16 << 20
    """The same for one frame of it."""
    ws_pass_frames: int = 256
    """Of all WebSockets in a pass of the loop; 0: no limit."""
    ws_max_subscriptions: int = 10_000
    """Of one WebSocket; 0: no limit."""
    ws_max_request_id_bytes: int = 1024
    """Of a command's `request_id`, which every reply repeats; 0: no limit."""
    ws_publishes_in_flight: int = 256
    """Publishes of a WebSocket that wait for their commit at a time; what comes behind them waits unread."""
    gzip_level: int = 1
    """Of answers to clients that take gzip; 0: never compressed."""
    gzip_min_bytes: int = 1024
    gzip_max_bytes: int = 256 << 10
    """Larger answers go as they are: compressing one would stop everybody else for milliseconds."""
    metrics_share_ms: int = 100
    """Scrapes beyond ten that come so fast share a page of up to this age. 0: each has its own."""
    max_client_bytes: int = 1 << 30
    """Held for all clients together, in unread answers and unfinished bodies; above it the largest go. 0: any."""
    listen_backlog: int = 1024
    keepalive_ms: int = 60_000
    """A peer silent for so long is asked by TCP whether it is there, and lost after as long again. 0: never."""
    h2_max_streams: int = 1024
    """Concurrent requests of one HTTP/2 connection."""
    h2_stream_window_bytes: int = 1 << 20
    h2_connection_window_bytes: int = 4 << 20
    h2_ping_after_ms: int = 20_000
    h2_ping_timeout_ms: int = 20_000
    h2_reset_burst: int = 1000
    """Requests an HTTP/2 peer may take back at once ..."""
    h2_resets_per_s: int = 100
    """... and on the whole; with more it is sent away (rapid reset)."""
    h2_control_burst: int = 10_000
    h2_controls_per_s: int = 2000
    """The same for frames that carry nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones."""
    h2_drain_bytes: int = 128 << 20
    """Taken and dropped of request bodies that go on after their answers, before the streams are reset; counted over
    the streams of one connection that do so at the same time."""
    h2_drain_ms: int = 10_000
    """The same for time, of each stream."""

    # --- ring
    io: str = "auto"
    """auto, uring or portable."""
    ring_entries: int = 512
    ring_completions: int = 4096
    receive_buffers: int = 512
    receive_buffer_bytes: int = 16_384
    spin_us: int = 0
    """A wait polls for so long before it sleeps, while waits prove to be that short (io_uring). 0: it does not."""

    # --- storage
    data_dir: str = "./topics-data"
    cold_dir: str = ""
    wal_shards: int = 1
    wal_file_bytes: int = 64 << 20
    """Rounded up to whole blocks of 4096."""
    wal_spare_files: int = 1
    commit: str = "auto"
    """auto, link, direct or dsync."""
    sync_every_ms: int = 1000
    commit_window_us: int = 0
    """How long a batch may wait for more; 0: it leaves as soon as the commit before it has ended."""
    commit_gather_us: int = 300
    """How long a synced group is held back after the commit before it, while that proves to bring more records a
    second; 0: never."""
    commit_in_place_max_us: int = 20_000
    """A lone write of a connection that is alone, or up to 1 MiB that nobody waits to be synced, is committed while the
    loop waits, unless one took longer than this a moment ago; 0: never."""
    hot_tail_bytes: int = 64 << 20
    checkpoint_wal_bytes: int = 256 << 20
    """A checkpoint starts when this many bytes of log are not yet in segments."""
    checkpoint_every_ms: int = 60_000
    checkpoint_bytes_per_pass: int = 1 << 20
    checkpoint_topics_per_pass: int = 256
    checkpoint_us_per_pass: int = 1000
    """How long a checkpoint copies records before it lets others run; then they get twice that. 0: no such limit."""
    segment_max_events: int = 10_000
    segment_bulk: int = 4
    """Where one checkpoint has more records of a topic to copy, a new segment takes so many times as many at once."""
    segment_max_bytes: int = 64 << 20
    segment_max_age_ms: int = 3_600_000
    pack_run_bytes: int = 65_536
    """A topic with less than this to checkpoint shares a pack file."""
    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0
    disk_reserve_bytes: int = 16 << 20
    disk_low_water_bytes: int = 64 << 20
    max_backlog_bytes: int = 256 << 20
    max_log_bytes: int = 1 << 30
    """Of the log that no checkpoint has taken yet: from half of it on commits are held back; at it
    appends are refused. 0: any."""
    max_log_wait_ms: int = 1000
    """How long each commit may be held back for it."""

    # --- routers
    router_delay_ms: int = 10
    """How long records wait to be forwarded together, while nobody waits for the destination; five times that while
    records keep coming."""
    router_retry_ms: int = 100
    """How often a router that found no room tries again."""
    router_keep_bytes: int = 16 << 20
    """What a router that finds no room keeps of jobs that are acknowledged; acks beyond that are refused. 0: any."""

    # --- load
    delivery_budget_us: int = 5000
    """Deliveries of a pass end after this; what is left waits for the next passes. 0: none waits."""
    pass_requests_us: int = 5000
    """Requests of a pass begin until they have taken so long; the others wait for the next passes. 0: none waits."""
    pass_read_bytes: int = 1 << 20
    """Diffs of a pass begin until they read so much; the others wait for the next passes. 0: none waits."""
    pass_body_bytes: int = 1 << 20
    """Longer bodies are unpacked, scanned and made frames so much a pass, all together. 0: at one go."""
    pass_search_steps: int = 64
    """Deletes by tag look at so many chunks of 8192 records, or 256 tags each, in a pass, all together. 0: no limit."""
    pressure_full_backlog: int = 1000
    """Topics waiting for their delivery at which the pressure is 1."""
    pressure_full_latency_ms: int = 25
    """The same for the time they wait."""
    pressure_full_lag_ms: int = 250
    """The same for the lateness of a timer."""
    pressure_refuse_after_ms: int = 1000
    """How long the pressure has to be nearly 1 before writes are refused."""
    coalesce_max_ms: int = 20
    commit_window_max_us: int = 10_000
    """What `commit_window_us` grows to under pressure."""
    backpressure: bool = True
    """Refuse writes with 429 as the last step of the ladder."""

    # --- limits
    max_body_bytes: int = 64 << 20
    max_command_bytes: int = 1 << 20
    """The same for all requests but writes, whose bodies are looked at in one pass. 0: no limit of their own."""
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
    max_producers: int = 100_000
    """Over all topics, those forgotten but for their newest epoch included."""
    max_producer_parts: int = 1_000_000
    """That are known of, over all topics: 22 bytes each."""
    producer_epochs: int = 16
    """How many of a producer's newest epochs a topic knows the parts of."""
    producer_silence_ms: int = 604_800_000
    """How long after its last append a producer is forgotten but for its newest epoch."""
    max_part_bytes: int = 32 << 20
    """Of a producer's part that comes in pieces: accounted bytes of its records."""
    max_part_records: int = 100_000
    max_part_pieces: int = 1000
    """Pieces of such a part: the last one has work for each of those before it."""
    max_staged_bytes: int = 1 << 30
    """Of all pieces that wait for the last one of their part."""
    staged_ttl_ms: int = 3_600_000
    """How long after the newest piece of a part its pieces are dropped."""
    max_limit: int = 1000
    default_limit: int = 256
    max_wait_ms: int = 30_000
    default_batch_bytes: int = 1 << 20
    max_batch_bytes: int = 8 << 20
    max_claim: int = 1000
    max_claim_bytes: int = 64 << 20
    """Of the jobs of one claim together, one at least; 0: any."""
    max_watch_topics: int = 256
    max_wait_topics: int = 256
    max_waits: int = 10_000
    max_waited_topics: int = 262_144
    """In all waits together, each time it is named: 250 bytes each."""
    test_min_heartbeat_ms: int = 1000
    """Lowers the floor of heartbeat_ms, for tests."""

    # --- checks that cost
    verify: bool = os.environ.get("TOPICS_VERIFY") in {"true", "1"}
    """Compare the engine's counters with what they count, at the end of each pass and at the close: see
    topics/engine/verify.py. The variable counts for the library, too, so that a program's tests can be run with it."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            self._check_type(setting.name, setting.default)
        for name, choices in (
            ("io", ("auto", "uring", "portable")),
            ("commit", ("auto", "link", "direct", "dsync")),
            ("http_parser", ("auto", "h11", "httptools")),
            ("http_lane", ("auto", "off")),
        ):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} is {getattr(self, name)!r}: use one of {', '.join(choices)}")
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"port is {self.port}: use 0 (a free one) to 65535")
        for low, high in (
            ("send_low_water_bytes", "send_high_water_bytes"),
            ("stream_low_water_bytes", "stream_high_water_bytes"),
            ("ring_entries", "ring_completions"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise UsageError(f"{low} ({getattr(self, low)}) is above {high} ({getattr(self, high)}): use less")
        for name in _ZERO_IS_THE_MOST:
            if not getattr(self, name):
                object.__setattr__(self, name, RANGES[name][1])
        object.__setattr__(self, "wal_file_bytes", -(-self.wal_file_bytes // _BLOCK_BYTES) * _BLOCK_BYTES)
        if self.receive_buffers & (self.receive_buffers - 1):
            raise UsageError(f"receive_buffers is {self.receive_buffers}: use a power of two")

    def _check_type(self, name: str, default: object) -> None:
        """Raises UsageError: a value of another type than the default, or outside of the setting's range."""
        value = getattr(self, name)
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise UsageError(f"{name} is {value!r}: use True or False")
        elif isinstance(default, int):
            low, high = RANGES.get(name, (0, _U64_MAX))
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name} is {value!r}: use a whole number, {low} to {high}")
            if not low <= value <= high and name != "port":
                raise UsageError(f"{name} is {value}: use {low} to {high}")
        elif isinstance(default, tuple):
            if isinstance(value, str) or not all(isinstance(part, str) for part in _parts(value)):
                raise UsageError(f"{name} is {value!r}: use a tuple of strings")
            object.__setattr__(self, name, tuple(value))
        elif not isinstance(value, str):
            shown = "no string" if name == "api_keys" else repr(value)
            raise UsageError(f"{name} is {shown}: use a string")
        elif "\0" in value:
            raise UsageError(f"{name} holds a NUL: use text without one")


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, Iterable) else (None,)


def tiny_config(data_dir: str) -> Config:
    """A preset for tests: every bound small enough that a short run crosses it."""
    return Config(
        data_dir=data_dir,
        port=0,
        wal_file_bytes=256 * 1024,
        hot_tail_bytes=256 * 1024,
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

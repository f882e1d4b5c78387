"""The keyword arguments of `topics.open` and `put_topic` as types: a typo is an error of mypy.

A test compares them with `Config` and `TopicConfig`, which check the values.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

Delivery = Literal["at-least-once", "at-most-once"]
"""Whether a page of a named reader is committed after its caller has had it, or before."""
Guarantee = Literal["at_least_once", "exactly_once"]
"""How often a router forwards a record, crashes included."""


class TopicSettings(TypedDict, total=False):
    """The configuration of a topic. Source: wire contract, section 5.4."""

    type: Literal["log", "queue"]
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | None
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


class LogSettings(TypedDict, total=False):
    """The settings of a log. Source: docs/settings.md."""

    host: str
    port: int
    port_file: str
    api_keys: str
    api_keys_file: str
    core_dumps: bool
    allow_insecure_no_auth: bool
    probe_auth: bool
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    host_check: bool
    http_parser: Literal["auto", "h11", "httptools"]
    ui: Literal["on", "off"]
    http_lane: Literal["auto", "off"]
    head_timeout_ms: int
    idle_timeout_ms: int
    write_stall_timeout_ms: int
    min_body_bytes_per_s: int
    shutdown_grace_ms: int
    max_connections: int
    max_head_bytes: int
    max_head_fields: int
    send_high_water_bytes: int
    send_low_water_bytes: int
    stream_high_water_bytes: int
    stream_low_water_bytes: int
    ws_max_message_bytes: int
    ws_max_frame_bytes: int
    ws_pass_frames: int
    ws_max_subscriptions: int
    ws_max_request_id_bytes: int
    ws_publishes_in_flight: int
    gzip_level: int
    gzip_min_bytes: int
    gzip_max_bytes: int
    metrics_share_ms: int
    max_client_bytes: int
    listen_backlog: int
    keepalive_ms: int
    h2_max_streams: int
    h2_stream_window_bytes: int
    h2_connection_window_bytes: int
    h2_ping_after_ms: int
    h2_ping_timeout_ms: int
    h2_reset_burst: int
    h2_resets_per_s: int
    h2_control_burst: int
    h2_controls_per_s: int
    h2_drain_bytes: int
    h2_drain_ms: int
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    access_log: str
    access_log_format: Literal["combined", "json"]
    access_log_every_ms: int
    access_log_bytes: int
    io: Literal["auto", "uring", "portable"]
    ring_entries: int
    ring_completions: int
    receive_buffers: int
    receive_buffer_bytes: int
    spin_us: str
    cores: str
    pin_cores: bool
    cold_dir: str
    backup_dir: str
    archive_dir: str
    archive_every_ms: int
    archive_keep_bytes: int
    archive_base_every_ms: int
    archive_retain_ms: int
    archive_close_wait_ms: int
    archive_piece_bytes: int
    wal_shards: int
    wal_file_bytes: int
    wal_spare_files: int
    commit: Literal["auto", "link", "direct", "dsync"]
    sync_every_ms: int | None
    durability: Literal["ephemeral", "memory", "disk", "fsync"]
    commit_window_us: int
    commit_gather_us: int
    commit_in_place_max_us: int
    hot_tail_bytes: int
    prefetch_bytes: int
    checkpoint_wal_bytes: int
    checkpoint_every_ms: int
    checkpoint_bytes_per_pass: int
    checkpoint_topics_per_pass: int
    checkpoint_us_per_pass: int
    segment_max_events: int
    segment_bulk: int
    segment_max_bytes: int
    segment_max_age_ms: int
    pack_run_bytes: int
    compact_below: float
    hot_retain_segments: int
    hot_retain_bytes: int
    hot_retain_ms: int
    segment_codec: Literal["none", "zstd"]
    disk_reserve_bytes: int
    disk_low_water_bytes: int
    max_backlog_bytes: int
    max_log_bytes: int
    max_log_wait_ms: int
    max_pendings: int
    max_held_files: int
    max_unsynced_bytes: int
    router_delay_ms: int
    router_retry_ms: int
    router_keep_bytes: int
    delivery_budget_us: int
    pass_requests_us: int
    pass_read_bytes: int
    pass_body_bytes: int
    pass_search_steps: int
    pressure_full_backlog: int
    pressure_full_latency_ms: int
    pressure_full_lag_ms: int
    pressure_refuse_after_ms: int
    coalesce_max_ms: int
    commit_window_max_us: int
    backpressure: bool
    max_body_bytes: int
    max_command_bytes: int
    max_topics: int
    max_routers: int
    max_watch_sessions: int
    max_watch_sessions_per_key: int
    max_sse_connections: int
    max_sse_connections_per_key: int
    max_inflight_per_key: int
    max_total_bytes: int
    max_batch_records: int
    max_record_bytes: int
    max_meta_bytes: int
    max_meta_keys: int
    max_tag_bytes: int
    max_node_bytes: int
    max_nodes: int
    max_idempotency_key_bytes: int
    max_producer_id_bytes: int
    max_readers: int
    max_reader_pages: int
    max_producers: int
    max_producer_parts: int
    producer_epochs: int
    producer_silence_ms: int
    max_part_bytes: int
    max_part_records: int
    max_part_pieces: int
    max_staged_bytes: int
    staged_ttl_ms: int
    max_limit: int
    default_limit: int
    max_wait_ms: int
    default_batch_bytes: int
    max_batch_bytes: int
    max_claim: int
    max_claim_bytes: int
    max_attempts: int
    max_reason_bytes: int
    max_delay_ms: int
    max_ttl_ms: int
    max_watch_topics: int
    max_wait_topics: int
    max_prefixes: int
    max_last: int
    max_filter_records: int
    max_waits: int
    max_waited_topics: int
    test_min_heartbeat_ms: int
    verify: bool

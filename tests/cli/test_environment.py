"""Settings from the environment."""

import pytest

from topics.cli.environment import config_of, costly_settings, odd_variables
from topics.config import Config
from topics.errors import UsageError


def test_an_empty_port_is_refused_with_the_remedy() -> None:
    """A compose file sets it so from a variable that is not set."""
    with pytest.raises(UsageError, match="^TOPICS_PORT is '': use a number from 0 to 65535, or unset it$"):
        config_of({"TOPICS_PORT": ""})


def test_an_empty_environment_gives_the_defaults() -> None:
    assert config_of({}) == Config()


CONTRACT = {
    "TOPICS_HOST": ("127.0.0.1", "10.0.0.1", "10.0.0.1"),
    "TOPICS_PORT": (4000, "5", 5),
    "TOPICS_PORT_FILE": ("", "/p", "/p"),
    "TOPICS_API_KEYS": ("", "a:r,b", "a:r,b"),
    "TOPICS_ALLOW_INSECURE_NO_AUTH": (False, "1", True),
    "TOPICS_PROBE_AUTH": (False, "true", True),
    "TOPICS_DATA_DIR": ("./topics-data", "/d", "/d"),
    "TOPICS_COLD_DIR": ("", "/c", "/c"),
    "TOPICS_BACKUP_DIR": ("", "/b", "/b"),
    "TOPICS_ARCHIVE_DIR": ("", "/a", "/a"),
    "TOPICS_ARCHIVE_EVERY_MS": (1000, "50", 50),
    "TOPICS_ARCHIVE_KEEP_BYTES": (1 << 30, "7", 7),
    "TOPICS_ARCHIVE_BASE_EVERY_MS": (86_400_000, "7", 7),
    "TOPICS_ARCHIVE_RETAIN_MS": (0, "7", 7),
    "TOPICS_ARCHIVE_CLOSE_WAIT_MS": (10_000, "7", 7),
    "TOPICS_WAL_SHARDS": (1, "3", 3),
    "TOPICS_SEGMENT_MAX_EVENTS": (10_000, "7", 7),
    "TOPICS_SEGMENT_MAX_BYTES": (67_108_864, "8", 8),
    "TOPICS_SEGMENT_MAX_AGE_MS": (3_600_000, "0", 0),
    "TOPICS_HOT_RETAIN_SEGMENTS": (4, "9", 9),
    "TOPICS_HOT_RETAIN_BYTES": (0, "9", 9),
    "TOPICS_MAX_BODY_BYTES": (67_108_864, "0", 0),
    "TOPICS_MAX_TOPICS": (100_000, "0", 0),
    "TOPICS_MAX_ROUTERS": (10_000, "0", 0),
    "TOPICS_MAX_WATCH_SESSIONS": (10_000, "0", 0),
    "TOPICS_MAX_SSE_CONNECTIONS": (10_000, "0", 0),
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": (1000, "0", 0),
    "TOPICS_MAX_INFLIGHT_PER_KEY": (1000, "0", 0),
    "TOPICS_MAX_TOTAL_BYTES": (0, "18446744073709551615", 2**64 - 1),
    "TOPICS_MAX_BATCH_RECORDS": (10_000, "0", 1_000_000),
    "TOPICS_MAX_RECORD_BYTES": (1_048_576, "5", 5),
    "TOPICS_MAX_META_BYTES": (16_384, "5", 5),
    "TOPICS_MAX_TAG_BYTES": (256, "5", 5),
    "TOPICS_MAX_NODE_BYTES": (128, "5", 5),
    "TOPICS_MAX_NODES": (1000, "0", 1_000_000),
    "TOPICS_MAX_LIMIT": (1000, "5", 5),
    "TOPICS_MAX_CLAIM": (1000, "5", 5),
    "TOPICS_MAX_WATCH_TOPICS": (256, "5", 5),
    "TOPICS_CORES": ("1", "4", "4"),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_a_variable_of_the_contract_has_its_default_and_changes_its_setting(name: str) -> None:
    """14: integers trimmed, unparsable is the default; blank paths and hosts are unset."""
    default, text, value = CONTRACT[name]
    setting = name.removeprefix("TOPICS_").lower()
    assert getattr(config_of({}), setting) == default
    assert getattr(config_of({name: text}), setting) == value
    if name != "TOPICS_PORT":
        padded = f" {text} " if name != "TOPICS_API_KEYS" else text
        assert getattr(config_of({name: padded}), setting) == value
        assert getattr(config_of({name: " "}), setting) == default
    if isinstance(default, bool):
        for off in ("0", "yes", "TRUE", "on", ""):
            assert getattr(config_of({name: off}), setting) is False
    elif isinstance(default, int) and name != "TOPICS_PORT":
        for odd in ("", "many", "-1", "+1", "1.0", "0x5", "1_0", "\u0665"):
            assert getattr(config_of({name: odd}), setting) == default


def test_a_host_with_a_port_makes_any_port_variable_one_to_ignore() -> None:
    """14: a senseless one too."""
    for host in ("127.0.0.1:7", "[::1]:7"):
        assert config_of({"TOPICS_HOST": host, "TOPICS_PORT": " x"}).port == 7
    with pytest.raises(UsageError, match="TOPICS_PORT"):
        config_of({"TOPICS_HOST": "::1", "TOPICS_PORT": "x"})


def test_zero_shards_and_a_segment_of_no_record_mean_something() -> None:
    """14: the default, and the smallest there is."""
    config = config_of({"TOPICS_WAL_SHARDS": "0", "TOPICS_SEGMENT_MAX_EVENTS": "0"})
    assert (config.wal_shards, config.segment_max_events) == (1, 1)


def test_a_sync_by_time_can_be_one_that_never_comes() -> None:
    """14."""
    assert config_of({"TOPICS_SYNC_EVERY_MS": " none "}).sync_every_ms is None
    assert config_of({"TOPICS_SYNC_EVERY_MS": "never"}).sync_every_ms == 1000
    assert config_of({"TOPICS_CHECKPOINT_EVERY_MS": "none"}).checkpoint_every_ms == 60_000
    assert odd_variables({"TOPICS_SYNC_EVERY_MS": "none"}) == []
    assert len(odd_variables({"TOPICS_SYNC_EVERY_MS": "never", "TOPICS_CHECKPOINT_EVERY_MS": "none"})) == 2


def test_an_unparsable_integer_means_the_default() -> None:
    assert config_of({"TOPICS_MAX_TOPICS": "many"}).max_topics == Config().max_topics
    assert config_of({"TOPICS_MAX_TOPICS": " 7 "}).max_topics == 7


@pytest.mark.parametrize("port", ["", " 4000", "x", "-1", "65536"])
def test_a_port_that_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="port|PORT"):
        config_of({"TOPICS_PORT": port})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0.0.0.0:99", ("0.0.0.0", 99)),
        ("[::1]:98", ("::1", 98)),
        ("::1", ("::1", 4000)),
        ("localhost", ("localhost", 4000)),
    ],
)
def test_a_host_may_carry_the_port(host: str, expected: tuple[str, int]) -> None:
    config = config_of({"TOPICS_HOST": host})
    assert (config.host, config.port) == expected


@pytest.mark.parametrize("host", ["127.0.0.1:x", "[::1]:x", "[::1]:", "[::1]:" + "9" * 5000])
def test_a_host_with_a_port_that_is_no_number_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="the part after the colon must be a port number"):
        config_of({"TOPICS_HOST": host})


def test_a_host_with_a_port_outranks_the_port_variable() -> None:
    assert config_of({"TOPICS_HOST": "127.0.0.1:1", "TOPICS_PORT": "2"}).port == 1


def test_a_choice_that_does_not_exist_names_the_variable_and_the_choices() -> None:
    with pytest.raises(UsageError, match="TOPICS_IO is 'magic'.*auto, uring, portable"):
        config_of({"TOPICS_IO": "magic"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen_backlog", 1 << 33),
        ("ring_entries", 1 << 64),
        ("receive_buffers", 0),
        ("receive_buffers", 3),
        ("wal_file_bytes", 1),
        ("wal_file_bytes", 1 << 33),
        ("commit_window_us", 1 << 33),
        ("max_record_bytes", 1 << 33),
        ("max_tag_bytes", 1 << 16),
        ("max_idempotency_key_bytes", 1 << 16),
    ],
)
def test_a_number_that_a_format_or_the_kernel_cannot_take_is_refused_in_one_line(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"TOPICS_{name.upper()} is {value}: use"):
        config_of({f"TOPICS_{name.upper()}": str(value)})


def test_more_shards_and_larger_segments_than_there_can_be_mean_the_most_there_can_be() -> None:
    config = config_of({"TOPICS_WAL_SHARDS": "100", "TOPICS_SEGMENT_MAX_BYTES": str(1 << 64)})
    assert (config.wal_shards, config.segment_max_bytes) == (64, 1 << 31)


@pytest.mark.parametrize(
    "name",
    [
        "head_timeout_ms",
        "idle_timeout_ms",
        "write_stall_timeout_ms",
        "max_head_bytes",
        "max_head_fields",
        "max_backlog_bytes",
    ],
)
def test_a_limit_so_low_that_no_client_could_be_served_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"TOPICS_{name.upper()} is 0: use "):
        config_of({f"TOPICS_{name.upper()}": "0"})


def test_variables_that_mean_something_else_than_they_seem_to_are_told() -> None:
    env = {
        "TOPICS_SYNC_EVERY_MS": "fast",
        "TOPICS_HOT_TIAL_BYTES": "5",
        "TOPICS_VERIFY": "yes",
        "TOPICS_MAX_TOPICS": " 7 ",
        "TOPICS_API_KEYS": "secret",
        "TOPICS_PROBE_AUTH": "false",
        "HOME": "/",
    }
    told = odd_variables(env)
    assert told == [
        "TOPICS_HOT_TIAL_BYTES is not a setting (did you mean TOPICS_HOT_TAIL_BYTES?): it is ignored",
        "TOPICS_SYNC_EVERY_MS is 'fast', which is not a whole number: it is ignored",
        "TOPICS_VERIFY is 'yes', which means off: use true or false",
    ]


def test_a_record_so_large_that_its_read_holds_up_others_is_told_at_the_start() -> None:
    assert costly_settings(Config(max_record_bytes=4 << 20)) == []
    (told,) = costly_settings(config_of({"TOPICS_MAX_RECORD_BYTES": "4194305"}))
    assert told.startswith("TOPICS_MAX_RECORD_BYTES is 4194305: ")

"""Settings from the environment."""

import pytest

from topics.config import Config
from topics.errors import UsageError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Config.from_env({}) == Config()


def test_an_unparsable_integer_means_the_default() -> None:
    assert Config.from_env({"TOPICS_MAX_TOPICS": "many"}).max_topics == Config().max_topics
    assert Config.from_env({"TOPICS_MAX_TOPICS": " 7 "}).max_topics == 7


@pytest.mark.parametrize("port", ["", " 4000", "x", "-1", "65536"])
def test_a_port_that_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="port|PORT"):
        Config.from_env({"TOPICS_PORT": port})


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
    config = Config.from_env({"TOPICS_HOST": host})
    assert (config.host, config.port) == expected


def test_a_host_with_a_port_outranks_the_port_variable() -> None:
    assert Config.from_env({"TOPICS_HOST": "127.0.0.1:1", "TOPICS_PORT": "2"}).port == 1


def test_a_choice_that_does_not_exist_names_the_field_and_the_choices() -> None:
    with pytest.raises(UsageError, match="io is 'magic'.*auto, uring, portable"):
        Config.from_env({"TOPICS_IO": "magic"})


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
    with pytest.raises(UsageError, match=f"{name} is {value}: use"):
        Config.from_env({f"TOPICS_{name.upper()}": str(value)})


def test_more_shards_and_larger_segments_than_there_can_be_mean_the_most_there_can_be() -> None:
    config = Config.from_env({"TOPICS_WAL_SHARDS": "100", "TOPICS_SEGMENT_MAX_BYTES": str(1 << 64)})
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
def test_a_limit_so_low_that_nobody_could_be_served_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 0: use "):
        Config.from_env({f"TOPICS_{name.upper()}": "0"})

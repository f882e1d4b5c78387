"""Settings as a value."""

import pytest

from topics.config import Config
from topics.errors import UsageError


@pytest.mark.parametrize(
    ("setting", "value", "takes"),
    [
        ("sync_every_ms", "x", "a whole number, 0 to"),
        ("sync_every_ms", 1.5, "a whole number"),
        ("sync_every_ms", True, "a whole number, 0 to .*, or None for never"),
        ("checkpoint_every_ms", None, "a whole number"),
        ("durability", "sync", "use one of ephemeral, memory, disk, fsync"),
        ("durability", None, "a string"),
        ("sync_every_ms", -1, "use 0 to"),
        ("max_limit", -1, "use 0 to 1000000"),
        ("max_limit", "5", "a whole number"),
        ("max_topics", -1, "use 0 to"),
        ("max_topics", 1 << 64, "use 0 to"),
        ("pack_run_bytes", 1 << 29, "use 0 to 268435456"),
        ("ring_entries", 1, "use 8 to 32768"),
        ("ring_entries", 8192, "is above ring_completions"),
        ("port", "80", "a whole number"),
        ("verify", 1, "a boolean"),
        ("io", None, "a string"),
        ("data_dir", None, "a string"),
        ("cold_dir", "a\0b", "NUL"),
        ("allowed_hosts", "example.org", "a list of strings"),
        ("allowed_hosts", (1,), "a list of strings"),
        ("allowed_hosts", None, "a list of strings"),
        ("allowed_origins", ("https://a.example", "foo"), "'foo': use origins as browsers send them"),
        ("allowed_origins", ("localhost:8000",), "http://localhost:8000"),
        ("allowed_origins", ("http://a.example/",), "without a path"),
        ("allowed_origins", ("https://a.example:443",), "without the scheme's own port"),
    ],
)
def test_a_value_of_another_type_or_range_names_the_setting_and_what_it_takes(
    setting: str, value: object, takes: str
) -> None:
    with pytest.raises(UsageError, match=f"^{setting} .*{takes}"):
        Config(**{setting: value})  # type: ignore[arg-type]


def test_a_bound_of_the_log_below_what_stays_after_a_checkpoint_is_refused() -> None:
    for most, shards, least in ((1, 1, 4096), (200, 1, 4096), (4095, 1, 4096), (4096, 2, 8192), (4095, 0, 4096)):
        with pytest.raises(UsageError, match=rf"^max_log_bytes is {most}: use 0 \(no limit\), or {least} at least"):
            Config(max_log_bytes=most, wal_shards=shards)
    assert [Config(max_log_bytes=most).max_log_bytes for most in (0, 4096)] == [0, 4096]


def test_keys_of_a_wrong_type_are_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        Config(api_keys=["secret"])  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_origins_of_every_kind_that_browsers_send_may_be_allowed() -> None:
    listed = ("*", "null", "https://a.example", "HTTP://[::1]:8000", "http://a:443", "moz-extension://0f-1")
    assert Config(allowed_origins=listed).allowed_origins == listed


def test_a_list_of_names_is_a_tuple_of_them() -> None:
    assert Config(allowed_hosts=["a"]).allowed_hosts == ("a",)  # type: ignore[arg-type]

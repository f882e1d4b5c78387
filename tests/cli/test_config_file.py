"""Settings from a file: TOML, below variables and options."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.cli.forked import run
from topics.cli.config_command import lines, show
from topics.cli.environment import config_of, settled
from topics.cli.exit_codes import options_named
from topics.cli.root_command import app
from topics.config import Config
from topics.errors import UsageError
from topics.server.keys_file import read_keys_file
from topics.server.startup import check_config


def written(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / "topics.toml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_variable_overrides_the_file_and_an_option_overrides_both(tmp_path: Path) -> None:
    """R-CONF-1."""
    env = {"TOPICS_CONFIG": written(tmp_path, 'port = 1\nio = "portable"\nmax_limit = 3\n')}
    assert config_of(env) == Config(port=1, io="portable", max_limit=3)
    env |= {"TOPICS_PORT": "2", "TOPICS_IO": "uring", "TOPICS_MAX_LIMIT": "many"}
    assert config_of(env) == Config(port=2, io="uring", max_limit=3)
    assert config_of(env, {"TOPICS_PORT": "4"}).port == 4


def test_values_of_every_type_are_those_of_toml(tmp_path: Path) -> None:
    """R-CONF-1."""
    text = 'backpressure = false\ncompact_below = 1\nallowed_hosts = ["a", "b"]\nsync_every_ms = "none"\nspin_us = 5\n'
    expected = Config(
        backpressure=False, compact_below=1, allowed_hosts=("a", "b"), sync_every_ms=None, spin_us="5", wal_shards=1
    )
    assert config_of({"TOPICS_CONFIG": written(tmp_path, text + "wal_shards = 0")}) == expected


@pytest.mark.parametrize(
    ("text", "env", "options", "expected"),
    [
        ('host = "10.0.0.1:5"\nport = 6', {}, {}, ("10.0.0.1", 5)),
        ('host = "10.0.0.1:5"', {"TOPICS_PORT": "7"}, {}, ("10.0.0.1", 7)),
        ("port = 6", {"TOPICS_HOST": "[::1]:8"}, {}, ("::1", 8)),
        ("", {"TOPICS_HOST": "10.0.0.1:5", "TOPICS_PORT": "x"}, {"TOPICS_PORT": "9"}, ("10.0.0.1", 9)),
    ],
)
def test_only_a_source_above_a_host_overrides_its_port(
    tmp_path: Path, text: str, env: dict[str, str], options: dict[str, str], expected: tuple[str, int]
) -> None:
    """R-CONF-1."""
    config = config_of({"TOPICS_CONFIG": written(tmp_path, text), **env}, options)
    assert (config.host, config.port) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "prot is not a setting: did you mean port?"),
        ("TOPICS_DATA-DIR = 'x'", "TOPICS_DATA-DIR is not a setting: did you mean data_dir?"),
        ("[server]\nport = 1", "server is not a setting: "),
        ("colour = 'red'", "colour is not a setting: docs/settings.md lists all settings"),
        ("port = '80'", "port is '80': use a whole number"),
        ("port = 70000", "port is 70000: use 0 (a free one) to 65535"),
        ("backpressure = 1", "backpressure is 1: use a boolean"),
        ("sync_every_ms = true", 'sync_every_ms is true: use a whole number, 0 to 18446744073709551615, or "none" for'),
        (
            "sync_every_ms = 'None'",
            "sync_every_ms is 'None': use a whole number, 0 to 18446744073709551615, or \"none\"",
        ),
        ("max_limit = 2026-01-01", "max_limit is 2026-01-01: use a whole number"),
        ("max_limit = [true, 1.0, {a = 07:32:00}]", 'max_limit is [true, 1.0, {"a" = 07:32:00}]: use a whole number'),
        ("backpressure = inf", "backpressure is inf: use a boolean"),
        ("compact_below = false", "compact_below is false: use a number from 0 to 1"),
        ("allowed_hosts = [1979-05-27T07:32:00Z]", "allowed_hosts is [1979-05-27T07:32:00+00:00]: use a list of"),
        ("io = {}", "io is {}: use a string, one of 'auto', 'uring', 'portable'"),
        ("ui = false", "ui is false: use a string, one of 'on', 'off'"),
        ("io = 'magic'", "io is 'magic': use one of auto, uring, portable"),
        ("allowed_hosts = 'a'", "allowed_hosts is 'a': use a list of strings"),
        ("host = ''", "host is '': use an address, or leave it out"),
        ("host = 'a:b'", "host is 'a:b': the part after the colon must be a port number"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_with_the_file_and_the_key(tmp_path: Path, text: str, told: str) -> None:
    """R-CONF-2."""
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        config_of({"TOPICS_CONFIG": path})
    assert str(caught.value).startswith(f"TOPICS_CONFIG {path}: {told}")


def test_a_list_of_which_one_text_has_several_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, 'allowed_hosts = ["a.example", "b.example,c.example"]')
    with pytest.raises(UsageError) as caught:
        config_of({"TOPICS_CONFIG": path})
    told = "allowed_hosts has 'b.example,c.example': write each as a text of its own, without commas"
    assert str(caught.value) == f"TOPICS_CONFIG {path}: {told}"


def test_a_file_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    """R-CONF-2."""
    with pytest.raises(
        UsageError, match=r"^TOPICS_CONFIG /no/such cannot be read: No such file or directory: name a file of settings$"
    ):
        config_of({"TOPICS_CONFIG": "/no/such"})
    path = written(tmp_path, "port 1")
    with pytest.raises(UsageError, match=rf"^TOPICS_CONFIG {path} is no TOML: .*line 1.*: write lines such as"):
        config_of({"TOPICS_CONFIG": path})
    Path(path).write_bytes(b"port = 1\n# caf\xe9\n")
    with pytest.raises(UsageError) as caught:
        config_of({"TOPICS_CONFIG": path})
    told = "line 2 has the byte 0xe9, which is not UTF-8: save it as UTF-8, or name a file of settings"
    assert str(caught.value) == f"TOPICS_CONFIG {path} is no TOML: {told}"
    Path(path).write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="is over 1048576 bytes"):
        config_of({"TOPICS_CONFIG": path})


def test_lists_in_lists_without_an_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("allowed_hosts = " + "[" * 3000)
    with pytest.raises(UsageError, match=f"^TOPICS_CONFIG {path} has lists in each other without an end: name a file"):
        config_of({"TOPICS_CONFIG": str(path)})


def test_a_directory_that_serve_refuses_is_refused_beside_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was shown as settings with which a server starts."""
    monkeypatch.setenv("TOPICS_DATA_DIR", str(tmp_path / "data"))
    for above in (tmp_path, Path("/")):
        monkeypatch.setenv("TOPICS_ARCHIVE_DIR", str(above))
        with pytest.raises(typer.Exit) as ended:
            show()
        said = f"TOPICS_ARCHIVE_DIR is '{above}', and the data directory '{tmp_path}/data' is in it: name a directory"
        assert (ended.value.exit_code, said in capsys.readouterr().err) == (1, True)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """R-CONF-2."""
    os.mkfifo(tmp_path / "pipe")
    told = f"^TOPICS_CONFIG {tmp_path}/pipe cannot be read: it is no regular file: name a file of settings$"
    with pytest.raises(UsageError, match=told):
        config_of({"TOPICS_CONFIG": str(tmp_path / "pipe")})
    with pytest.raises(
        UsageError, match=f"^api_keys_file {tmp_path}/pipe cannot be read: it is no regular file: name a file of keys$"
    ):
        read_keys_file(str(tmp_path / "pipe"))


def test_keys_in_a_file_for_all_users_are_refused_and_not_shown(tmp_path: Path) -> None:
    """R-CONF-3."""
    path = written(tmp_path, 'api_keys = "secret"', 0o604)
    with pytest.raises(UsageError, match="may be read by all users: run `chmod o= ") as caught:
        config_of({"TOPICS_CONFIG": path})
    assert "secret" not in str(caught.value)
    Path(path).chmod(0o640)
    assert config_of({"TOPICS_CONFIG": path}).api_keys == "secret"


def test_the_settings_shown_are_a_file_that_gives_the_same_settings(tmp_path: Path) -> None:
    """R-CONF-4."""
    env = {"TOPICS_HOST": "::1", "TOPICS_ALLOWED_HOSTS": 'a,b"\\é\x7f', "TOPICS_SYNC_EVERY_MS": "none"}
    for origin in (False, True):
        path = written(tmp_path, "\n".join(lines(settled(env), origin=origin)))
        assert config_of({"TOPICS_CONFIG": path}) == config_of(env)


def test_each_setting_is_shown_with_its_origin_and_keys_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-CONF-4."""
    path = written(tmp_path, 'api_keys = "hidden-key"\nmax_limit = 3\nio = "portable"\n')
    monkeypatch.setenv("TOPICS_HOST", "127.0.0.1:4001")
    monkeypatch.setenv("TOPICS_IO", "auto")
    shown = CliRunner().invoke(app, ["config", "show", "--origin", "--config", path]).output.splitlines()
    assert "hidden-key" not in "".join(shown)
    assert {
        f"# api_keys is set, and not shown  # --config {path}: api_keys",
        f"max_limit = 3  # --config {path}: max_limit",
        'host = "127.0.0.1"  # TOPICS_HOST',
        "port = 4001  # TOPICS_HOST",
        'io = "auto"  # TOPICS_IO',
        'data_dir = "./topics-data"  # default',
    } <= set(shown)
    assert tomllib.loads("\n".join(shown))["max_limit"] == 3


def test_what_serve_warns_of_is_said_beside_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPICS_PROT", "4001")
    show()
    shown = capsys.readouterr()
    assert shown.err == "topics: TOPICS_PROT is not a setting (did you mean TOPICS_PORT?): it is ignored\n"
    assert tomllib.loads(shown.out)["port"] == 4000


def test_settings_with_which_no_server_starts_are_shown_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-CONF-4."""
    monkeypatch.setenv("TOPICS_HOST", "0.0.0.0")
    with pytest.raises(typer.Exit) as caught:
        show()
    shown = capsys.readouterr()
    assert caught.value.exit_code == 1
    assert shown.err.startswith("topics: '0.0.0.0' can be reached from other machines and no keys are configured: ")
    assert tomllib.loads(shown.out)["host"] == "0.0.0.0"
    monkeypatch.setenv("TOPICS_API_KEYS", "key")
    show()
    assert capsys.readouterr().err == ""


def test_a_setting_that_is_no_utf8_is_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_DATA_DIR", "\udcff")
    with pytest.raises(
        UsageError, match=r"^TOPICS_DATA_DIR is '\\udcff', which is no UTF-8, as a file of settings is$"
    ):
        show()


def test_a_server_is_refused_for_its_file_and_fsck_reads_it(tmp_path: Path) -> None:
    """R-CONF-2."""
    path = written(tmp_path, "prot = 1")
    done = run(["serve", "--config", path, "--data-dir", str(tmp_path / "data")], os.environ)
    assert (done.code, done.stderr) == (1, f"topics: --config {path}: prot is not a setting: did you mean port?\n")
    path = written(tmp_path, f'data_dir = "{tmp_path}/nothing-here"')
    done = run(["fsck"], {**os.environ, "TOPICS_CONFIG": path})
    assert "nothing-here" in done.stderr


def test_a_file_of_keys_that_cannot_be_read_is_named_by_what_named_it(tmp_path: Path) -> None:
    """The file of settings was not named, but a variable that is not set."""
    path = written(tmp_path, 'api_keys_file = "/no/such"')
    for env, named in (
        ({"TOPICS_CONFIG": path}, f"TOPICS_CONFIG {path}: api_keys_file"),
        ({"TOPICS_API_KEYS_FILE": "/no/such"}, "TOPICS_API_KEYS_FILE"),
    ):
        config, origins = settled(env)
        with pytest.raises(UsageError) as caught, options_named(origins):
            check_config(config)
        assert str(caught.value) == f"{named} /no/such cannot be read: No such file or directory: name a file of keys"

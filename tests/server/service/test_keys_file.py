"""Keys from a file, and changing them while the server runs."""

from pathlib import Path

import pytest

from tests.server.server_world import World
from topics.config import Config
from topics.errors import UsageError
from topics.server.keys_file import read_keys_file, with_keys_of_file
from topics.server.startup import check_config


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, "one\n# two\nthree:r , four\n\n")
    return path


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def status(world: World, token: str, path: str = "/v0/topics") -> int:
    return world.connect().get(path, f"Authorization: Bearer {token}").status


def test_a_file_has_an_entry_a_line(keys: Path) -> None:
    """4.1: commas too; comments are none."""
    config = with_keys_of_file(Config(api_keys="zero", api_keys_file=str(keys)))
    assert [entry.strip() for entry in config.api_keys.split(",")] == ["zero", "one", "three:r", "four", ""]
    check_config(Config(host="0.0.0.0", api_keys_file=str(keys)))


def test_what_is_wrong_with_the_file_stops_the_start(keys: Path) -> None:
    """R-LIFE-1: missing, no text, readable by all users."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys_file(f"{keys}.missing")
    write(keys, "one", 0o644)
    with pytest.raises(UsageError, match="may be read by all users"):
        read_keys_file(str(keys))
    keys.chmod(0o600)
    keys.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="UTF-8"):
        read_keys_file(str(keys))
    write(keys, "one:reed")
    with pytest.raises(UsageError, match=f"entry 1 of TOPICS_API_KEYS_FILE {keys} names an unknown scope"):
        check_config(Config(api_keys="first", api_keys_file=str(keys)))


def test_keys_change_while_the_server_runs(keys: Path) -> None:
    """4.3: those taken away are refused from the next request on, on kept connections and for heads seen before."""
    world = World(api_keys="lasting", api_keys_file=str(keys)).start()
    kept = world.connect()
    assert kept.get("/v0/metrics", "Authorization: Bearer one").status == 200
    write(keys, "two,three:d")
    world.server.reload_keys()
    assert kept.get("/v0/metrics", "Authorization: Bearer one").status == 401
    assert status(world, "two", "/v0/metrics") == 200
    assert status(world, "three", "/v0/metrics") == 403
    assert status(world, "lasting", "/v0/metrics") == 200


def test_a_key_that_stays_is_who_it_was(keys: Path) -> None:
    """10.3: its sessions, its streams and its requests in flight count on."""
    world = World(api_keys_file=str(keys)).start()
    before = world.server._keyring.find(b"four")
    changed = world.server._keyring.find(b"three")
    assert before is not None
    assert changed is not None
    write(keys, "new,three:w,four")
    world.server.reload_keys()
    ring = world.server._keyring
    assert ring.find(b"four") is before
    ids = {principal.key_id for token in (b"new", b"three", b"four") if (principal := ring.find(token)) is not None}
    assert len(ids) == 3
    assert changed.key_id not in ids


@pytest.mark.parametrize("text", ["", "# none", "a:reed"])
def test_a_file_with_a_mistake_changes_nothing(keys: Path, text: str) -> None:
    """R-LIFE-1: a running server neither ends nor opens its doors."""
    world = World(api_keys_file=str(keys)).start()
    write(keys, text)
    world.server.reload_keys()
    assert status(world, "one", "/v0/metrics") == 200
    assert status(world, "nobody", "/v0/metrics") == 401


def test_a_server_without_keys_stays_without() -> None:
    """4.2: it may be open to the world because a setting says so."""
    world = World().start()
    world.server.reload_keys()
    assert world.connect().get("/v0/metrics").status == 200

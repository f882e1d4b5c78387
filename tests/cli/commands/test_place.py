"""Which log a command works on: options before variables before contexts."""

from __future__ import annotations

from pathlib import Path

import pytest

from topics.cli.places.contexts import Context, Contexts, contexts_path, read_contexts, write_contexts
from topics.cli.places.place import DEFAULT_URL, Asked, LogPlace, place_of
from topics.errors import UsageError


def home_with(tmp_path: Path, contexts: Contexts) -> dict[str, str]:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    write_contexts(contexts_path(env), contexts)
    return env


def test_options_come_before_variables_and_variables_before_the_current_context(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(" prod-key\n")
    env = home_with(
        tmp_path, Contexts("prod", {"prod": Context("http://prod", str(key)), "dev": Context("http://dev")})
    )
    assert place_of(Asked(), env) == LogPlace("http://prod", "prod-key")
    assert place_of(Asked(context="dev"), {**env, "TOPICS_KEY": "k"}) == LogPlace("http://dev", "k")
    assert place_of(Asked(), {**env, "TOPICS_KEY": "k"}) == LogPlace("http://prod", "prod-key")
    assert place_of(Asked(), {**env, "TOPICS_CONTEXT": "dev"}) == LogPlace("http://dev")
    assert place_of(Asked(), {**env, "TOPICS_CONTEXT": "dev", "TOPICS_URL": "http://u"}) == LogPlace("http://u")
    assert place_of(Asked(url="http://o"), {**env, "TOPICS_URL": "http://u", "TOPICS_KEY": "k"}) == LogPlace(
        "http://o", "k"
    )
    assert place_of(Asked(url="http://o", key_file=str(key)), {**env, "TOPICS_KEY": "k"}) == LogPlace(
        "http://o", "prod-key"
    )
    assert place_of(Asked(data_dir="d"), {**env, "TOPICS_URL": "http://u"}) == LogPlace(data_dir="d")


def test_without_anything_it_is_the_server_of_this_machine(tmp_path: Path) -> None:
    assert place_of(Asked(), {"HOME": str(tmp_path)}) == LogPlace(DEFAULT_URL)
    assert contexts_path({"HOME": "/h"}) == Path("/h/.config/topics/contexts.toml")


def test_an_empty_key_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    with pytest.raises(UsageError, match="is empty: write the key into it"):
        place_of(Asked(url="http://u", key_file=str(tmp_path / "key")), {})


def test_contexts_of_any_name_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = {'odd "name"\\\n\x7f😀': Context("http://a", "/k"), "plain": Context("http://b")}
    env = home_with(tmp_path, Contexts("plain", rows))
    assert read_contexts(contexts_path(env)) == Contexts("plain", rows)
    assert [path.name for path in contexts_path(env).parent.iterdir()] == ["contexts.toml"]


@pytest.mark.parametrize(
    "text",
    ["[[[", "current = 1", "contexts = 1", "[contexts.a]\nkey_file = 'k'", "[contexts.a]\nurl = 'u'\nkey_file = 1"],
)
def test_a_file_of_contexts_that_makes_no_sense_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match="contexts.toml is no"):
        read_contexts(path)

"""Which log a command works on: options before variables before contexts."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import topics
from topics.cli.places.contexts import Context, Contexts, contexts_path, read_contexts, write_contexts
from topics.cli.places.place import DEFAULT_URL, Asked, LogPlace, opened, place_of
from topics.errors import RequestError, UsageError


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
    assert place_of(Asked(), env) == LogPlace("http://prod", "prod-key", named="context prod")
    assert place_of(Asked(context="dev"), {**env, "TOPICS_KEY": "k"}) == LogPlace(
        "http://dev", "k", named="context dev"
    )
    assert place_of(Asked(), {**env, "TOPICS_KEY": "k"}) == place_of(Asked(), env)
    assert place_of(Asked(), {**env, "TOPICS_CONTEXT": "dev"}) == LogPlace("http://dev", named="context dev")
    assert place_of(Asked(), {**env, "TOPICS_CONTEXT": "dev", "TOPICS_URL": "http://u"}) == LogPlace(
        "http://u", named="TOPICS_URL"
    )
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


class FakeServer:
    """A log whose one topic is orders."""

    def topics(self, prefix: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="orders")] if "orders".startswith(prefix) else []


@pytest.mark.parametrize(
    ("code", "detail", "key", "said"),
    [
        ("unauthorized", None, "", "wants a key, and none was sent: set TOPICS_KEY, or use --key-file"),
        ("unauthorized", None, "k", "does not know this key: set TOPICS_KEY, or use --key-file"),
        ("topic_not_found", {"topic": "order"}, "", r"'order' does not exist: did you mean orders\? \(`topics ls`"),
        ("topic_not_found", {"topic": "jobs"}, "", r"'jobs' does not exist: create it first \(`topics ls`"),
        ("topic_exists", {"topic": "order"}, "", "^as it was$"),
    ],
)
def test_an_error_of_a_server_names_what_to_do_here(
    code: str, detail: Any, key: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "connect", lambda *_arguments, **_options: nullcontext(FakeServer()))
    with (
        pytest.raises(RequestError, match=said) as raised,
        opened(LogPlace("http://u", key), {}, writes=False, timeout=1),
    ):
        raise RequestError(code, "as it was", detail)
    assert (raised.value.code, raised.value.detail) == (code, detail)

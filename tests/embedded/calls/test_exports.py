"""Names that a program imports from `topics`, and types of its arguments."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import topics
from topics.common.settings import LogSettings, TopicSettings
from topics.config import CHOICES, Config
from topics.engine.values.topic_config import DEFAULT


def classes_in(hint: Any) -> Iterator[type]:
    """Yield the classes of this package that an annotation names."""
    if inspect.isclass(hint) and hint.__module__.startswith("topics."):
        yield hint
    for each in typing.get_args(hint):
        yield from classes_in(each)


@pytest.mark.parametrize("kind", [topics.Log, topics.AsyncLog, topics.LogReader, topics.AsyncLogReader])
def test_what_a_public_method_takes_or_returns_can_be_imported(kind: type) -> None:
    hidden = set()
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            for hint in typing.get_type_hints(method).values():
                hidden |= {each for each in classes_in(hint) if getattr(topics, each.__name__, None) is not each}
    assert hidden == set()


def test_every_exported_name_is_there() -> None:
    assert [name for name in topics.__all__ if not hasattr(topics, name)] == []
    assert {"AppendResult", "TopicState", "TopicConfig", "Tombstone", "AsyncLog"} <= {*topics.__all__}


def test_a_log_shows_its_directory_and_whether_it_is_open(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        assert repr(log) == f"<topics.Log of '{tmp_path}/data', open>"
    assert repr(log) == f"<topics.Log of '{tmp_path}/data', closed>"
    with topics.open(tmp_path / "data", read_only=True) as log:
        assert repr(log) == f"<topics.ReadOnlyLog of '{tmp_path}/data', open>"


def test_the_types_of_settings_are_those_of_the_configs() -> None:
    """A typo in a keyword argument is an error of a type checker."""
    settings = {field.name: field.type for field in fields(Config) if field.name != "data_dir"}
    for name, choices in CHOICES.items():
        settings[name] = f"Literal[{', '.join(map(repr, choices))}]"
    assert {name: hint.__forward_arg__ for name, hint in LogSettings.__annotations__.items()} == settings
    assert list(TopicSettings.__annotations__) == [*json.loads(DEFAULT.as_json())]
    for kind, calls in ((topics.Log, ("put_topic", "patch_topic")), (topics.AsyncLog, ("put_topic", "patch_topic"))):
        for call in calls:
            hints = inspect.get_annotations(getattr(kind, call))
            assert "Unpack[TopicSettings]" in hints.values()
    assert "Unpack[LogSettings]" in inspect.get_annotations(topics.open).values()

"""Words that the parser refuses, of every command: a sentence has the argument, its value, a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from topics.cli.known_commands import COMMANDS
from topics.cli.lazy_group import load
from topics.cli.root_command import app
from topics.errors import UsageError


def commands() -> Iterator[tuple[list[str], Any]]:
    """Yield the words and the parser of each command, those in groups too."""
    for name in COMMANDS:
        command = load(name)
        inner = getattr(command, "commands", None)
        if inner is None:
            yield [name], command
        else:
            yield from (([name, each], found) for each, found in inner.items())


NUMBERS = [
    (words, param)
    for words, command in commands()
    for param in command.params
    if getattr(param, "min", None) is not None and param.opts[0].startswith("--")
]


ONCE = [
    (" ".join(words), command, param.opts[0])
    for words, command in commands()
    for param in command.params
    if param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count)
]


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, words, prog_name="topics")
    assert done.exit_code == 2, done.output
    line, end = done.output.split("\n")
    assert end == ""
    return line


@pytest.mark.parametrize(("words", "param"), NUMBERS, ids=lambda given: getattr(given, "name", None))
def test_a_number_out_of_range_is_refused_with_its_value_and_the_range(words: list[str], param: Any) -> None:
    option, low, high = param.opts[0], param.min, param.max
    for value in (str(low - 1), "x"):
        said = refused(*words, option, value)
        assert said.startswith(f"topics: {option} is '{value}': use a ")
        assert said.endswith(f"number, {low} at least" if high is None else f"number from {low} to {high}")


def test_there_are_such_options() -> None:
    assert len(NUMBERS) > 60


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["get", "t", "1", "0"], "seqs is '0': use a number, 1 at least"),
        (["queue", "redrive", "q", "x"], "SEQ is 'x': use a whole number, 1 at least"),
        (["nosuch"], "no such command 'nosuch': `topics --help` lists what there is"),
        (["lss"], "no such command 'lss': did you mean 'ls'?"),
        (["queue", "nosuch"], "no such command 'nosuch': `topics queue --help` lists what there is"),
        (["get", "t", "--nosuch"], "no such option: --nosuch: `topics get --help` lists what there is"),
        (["--nosuch"], "no such option: --nosuch: `topics --help` lists what there is"),
        (["get"], "missing argument 'topic': `topics get --help` lists what there is"),
        (["serve", "--port"], "option '--port' requires an argument: `--help` after the command lists what there is"),
    ],
)
def test_whatever_else_the_parser_cannot_take_is_refused_in_one_sentence(words: list[str], sentence: str) -> None:
    assert refused(*words) == f"topics: {sentence}"


def test_a_group_without_a_command_shows_its_help() -> None:
    assert "redrive" in CliRunner().invoke(app, ["queue"]).output


@pytest.mark.parametrize(("name", "command", "option"), ONCE, ids=[f"{name} {option}" for name, _, option in ONCE])
def test_a_second_value_of_an_option_is_refused(name: str, command: Any, option: str) -> None:
    """The last one was taken, and nothing was said of the first."""
    second = [f"{option}=2"] if option.startswith("--") else [option, "2"]
    with pytest.raises(UsageError) as refused:
        command.make_context(name, [option, "1", *second])
    assert str(refused.value) == f"{option} is given 2 times, as '1' and '2': leave out all but one"


def test_an_option_that_may_be_repeated_and_a_flag_are_taken() -> None:
    (bridge,) = (command for words, command in commands() if words == ["bridge"])
    words = ["--to", "kafka://h", "--topics", "a", "--once", "--once", "--set", "a=1", "--set", "b=2"]
    given = bridge.make_context("bridge", words).params
    assert (given["once"], given["settings"]) == (True, ["a=1", "b=2"])

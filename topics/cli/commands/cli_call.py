"""The options that commands share: where the topics are, and how the output looks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from topics.cli.exit_codes import PIPE_CLOSED
from topics.cli.output.printer import Printer
from topics.cli.output.record_text import FORMAT_HELP
from topics.cli.output.standard_streams import drop_output
from topics.cli.places.place import DEFAULT_URL, Asked, LogPlace, opened, place_of
from topics.errors import UsageError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

P = ParamSpec("P")
_SECONDS_MAX = 1e15
"""More than any time that a server or a log takes."""
SHORT_S, PATIENCE_S = 5.0, 30.0
"""How long a command, and one that runs on, ask a server that does not answer."""

Url = Annotated[str | None, typer.Option(help=f"The server; else TOPICS_URL, a context, {DEFAULT_URL}.")]
KeyFile = Annotated[str | None, typer.Option(help="File with the key; else that of the context, TOPICS_KEY.")]
ContextName = Annotated[str | None, typer.Option("--context", help="A name of `topics context ls`.")]
DataDirectory = Annotated[str | None, typer.Option("--data-dir", help="Data directory of a stopped server instead.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.1, help="Seconds to ask a server that does not answer.")
]
Output = Annotated[str | None, typer.Option("--output", "-o", help="table, json or raw; else by where it is written.")]
Template = Annotated[str | None, typer.Option("--format", "-f", help=f"Template of a record: {FORMAT_HELP}")]


def milliseconds(option: str, seconds: float) -> int:
    """Return seconds that an option names as ms. Raises: UsageError, no time is so long."""
    if not abs(seconds) <= _SECONDS_MAX:  # nor nan
        raise UsageError(f"{option} is {seconds}: use a number of seconds, {_SECONDS_MAX:g} at most")
    return round(seconds * 1000)


class CliCall(NamedTuple):
    """The arguments of every command: the place that its options name, and a printer."""

    place: LogPlace
    printer: Printer
    timeout: float | None = None

    def log(
        self, *, writes: bool = False, makes: bool = True, patience_s: float = SHORT_S
    ) -> AbstractContextManager[AnyLog]:
        """Open the log.

        writes: whether the command changes anything. makes: whether it then makes a log in a
        directory that has none. patience_s: how long it asks a server that does not answer, unless
        the caller has said so.
        """
        timeout = patience_s if self.timeout is None else self.timeout
        return opened(self.place, os.environ, writes=writes, makes=makes, timeout=timeout)


_PLACE_AND_OUTPUT: dict[str, Any] = {
    "url": Url,
    "key_file": KeyFile,
    "context": ContextName,
    "data_dir": DataDirectory,
    "timeout": Timeout,
    "output": Output,
}


def on_topics(function: Callable[Concatenate[CliCall, P], None]) -> Callable[..., None]:
    """Give a command the options of all commands on topics; it gets them as a `CliCall`."""
    return _with_options(function, _PLACE_AND_OUTPUT)


def on_records(function: Callable[Concatenate[CliCall, P], None]) -> Callable[..., None]:
    """Give a command that prints records the same options, and a template."""
    return _with_options(function, {**_PLACE_AND_OUTPUT, "template": Template})


def _with_options(function: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
    signature = inspect.signature(function, eval_str=True)
    _call, *mine = signature.parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=each) for name, each in options.items()]

    @wraps(function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def run(**given: Any) -> None:
        shared = {name: given.pop(name) for name in options}
        timeout = shared.pop("timeout")
        printer = Printer(shared.pop("output"), shared.pop("template", None))
        with _until_pipe_closes():
            function(CliCall(place_of(Asked(**shared), os.environ), printer, timeout), **given)
            printer.flush()

    parameters = [*(each.replace(kind=kind) for each in mine), *added]
    vars(run).update(__signature__=signature.replace(parameters=parameters))
    run.__annotations__.clear()
    run.__annotations__.update({each.name: each.annotation for each in parameters})
    return run


@contextmanager
def _until_pipe_closes() -> Iterator[None]:
    """End the command where the reader of its output has left, without a word."""
    try:
        yield
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(PIPE_CLOSED) from None

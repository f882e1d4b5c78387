"""The command `topics`. An error is one sentence and a non-zero exit code."""

from __future__ import annotations

import os
import sys

from topics.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, REFUSED, USAGE, exit_code_of, report
from topics.cli.output.standard_streams import drop_output, flush_output, prepare_streams
from topics.cli.root_help import root_help
from topics.common.extras import engine_missing, is_engine_missing
from topics.errors import TopicsError, UsageError


def main() -> None:
    """Run the console script."""
    try:
        prepare_streams()
        code = _exit_code()
        error = flush_output()
    except KeyboardInterrupt:  # before the command, or after it
        raise SystemExit(INTERRUPTED) from None
    if error is not None and not code:
        code = _refused(error)
    raise SystemExit(code)


def _exit_code() -> int:
    if sys.argv[1:] == ["--help"]:
        print(root_help())  # without the parser, which takes four times as long to load as the rest
        return 0
    try:
        _run()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer's answer to that is 1
            return _refused(end.__context__)
        return int(end.code or 0)
    except OSError as error:
        return _refused(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _refused(error: OSError) -> int:
    if error.filename == "stdout":
        drop_output()
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    report(error)
    return REFUSED


def _run() -> None:
    from topics.cli.root_command import app  # noqa: PLC0415 - help does not need the parser

    if "_TOPICS_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415 - a shell asks for words

        completion_init()
    try:
        app(prog_name="topics")
    except TopicsError as error:
        report(error)
        raise SystemExit(exit_code_of(error)) from None
    except ImportError as error:
        if not is_engine_missing(error):
            raise
        report(ImportError(engine_missing("this command", error)))
        raise SystemExit(REFUSED) from None
    except UnicodeEncodeError:
        if (sentence := _no_utf8(sys.argv)) is None:
            raise
        report(UsageError(sentence))
        raise SystemExit(USAGE) from None


def _no_utf8(words: list[str]) -> str | None:
    """Return a sentence about the first word of a command that is no UTF-8."""
    for at, word in enumerate(words):
        if word != word.encode(errors="replace").decode():
            name = words[at - 1] if at > 1 and words[at - 1].startswith("--") else f"argument {at}"
            return f"{name} is {word!r}, which is no UTF-8: write it in UTF-8"
    return None

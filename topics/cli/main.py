"""The command `topics`. An error is one sentence and a non-zero exit code."""

from __future__ import annotations

import os
import sys

from topics.cli.root_help import root_help
from topics.common.extras import engine_missing, is_engine_missing
from topics.errors import TopicsError


def main() -> None:
    """Run the console script."""
    if sys.argv[1:] == ["--help"]:
        print(root_help())  # without the parser, which takes four times as long to load as the rest
        return
    _run()


def _run() -> None:
    from topics.cli.exit_codes import REFUSED, exit_code_of, report  # noqa: PLC0415 - help needs none of these
    from topics.cli.root_command import app  # noqa: PLC0415

    if "_TOPICS_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415 - a shell asks for words

        completion_init()
    try:
        app(prog_name="topics")
    except (TopicsError, OSError) as error:
        report(error)
        raise SystemExit(exit_code_of(error)) from None
    except ImportError as error:
        if not is_engine_missing(error):
            raise
        report(ImportError(engine_missing("this command", error)))
        raise SystemExit(REFUSED) from None

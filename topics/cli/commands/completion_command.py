"""`topics completion SHELL`: the script by which a shell completes this command."""

from __future__ import annotations

from typing import Annotated

import typer

from topics.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TOPICS_COMPLETE"
"""Set by the scripts when the shell asks this command for words."""


def completion(shell: Annotated[str, typer.Argument(help=f"{', '.join(SHELLS)}.")]) -> None:
    """Print a script that makes a shell complete commands and options.

    bash: `source <(topics completion bash)`; zsh: the same with zsh, after `compinit`; fish:
    `topics completion fish > ~/.config/fish/completions/topics.fish`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # noqa: PLC0415 - only this command needs it

    if shell not in SHELLS:
        raise UsageError(f"shell is {shell!r}: use one of {', '.join(SHELLS)}")
    print(get_completion_script(prog_name="topics", complete_var=VARIABLE, shell=shell))

"""`topics context`: names for servers, so that commands need no address."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from topics.cli.commands.cli_call import Output
from topics.cli.output.printer import Printer, Row
from topics.cli.places.contexts import Context, Contexts, contexts_path, read_contexts, write_contexts
from topics.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Names for servers, kept in contexts.toml of the user's config directory; one of them is current.",
)
Name = Annotated[str, typer.Argument(help="The context.")]


@app.command()
def ls(output: Output = None) -> None:
    """List contexts; a star marks the current one."""
    contexts = read_contexts(contexts_path(os.environ))
    Printer(output).rows(
        ("CONTEXT", "CURRENT", "URL", "KEY FILE"),
        [
            Row(
                {"context": name, "current": name == contexts.current, **context._asdict()},
                (name, "*" if name == contexts.current else "", context.url, context.key_file or "-"),
            )
            for name, context in sorted(contexts.by_name.items())
        ],
        none="no contexts",
    )


@app.command(name="set")
def put(
    name: Name,
    url: Annotated[str, typer.Argument(help="Address of the server, http://HOST:PORT.")],
    key_file: Annotated[str, typer.Option(help="File with the key for it.")] = "",
    output: Output = None,
) -> None:
    """Keep a server under a name. The first one is current."""
    if not name or name != name.strip():
        raise UsageError(f"context name {name!r} has no letters, or blanks around them: use one such as prod")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"URL is {url!r}: use http://HOST:PORT")
    path = contexts_path(os.environ)
    contexts = read_contexts(path)
    context = Context(url, os.path.abspath(os.path.expanduser(key_file)) if key_file else "")
    write_contexts(path, Contexts(contexts.current or name, {**contexts.by_name, name: context}))
    Printer(output).said({"context": name, **context._asdict()}, f"{name}: {url}")


@app.command()
def use(name: Name, output: Output = None) -> None:
    """Make a context the current one."""
    path = contexts_path(os.environ)
    contexts = read_contexts(path)
    context = contexts.of(name)
    write_contexts(path, contexts._replace(current=name))
    Printer(output).said({"context": name, **context._asdict()}, f"{name}: {context.url}, the current one now")


@app.command()
def rm(name: Name, output: Output = None) -> None:
    """Forget a context."""
    path = contexts_path(os.environ)
    contexts = read_contexts(path)
    contexts.of(name)
    left = {each: context for each, context in contexts.by_name.items() if each != name}
    write_contexts(path, Contexts("" if contexts.current == name else contexts.current, left))
    Printer(output).said({"context": name, "removed": True}, f"{name}: removed")

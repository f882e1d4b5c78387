"""`topics router`: list, make and remove routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.output.shown_state import ROUTER_TITLES, router_row
from topics.errors import RequestError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Routers, which copy records from one topic to another."
)
Name = Annotated[str, typer.Argument(help="The router.")]


@app.command()
@on_topics
def ls(
    call: CliCall,
    *,
    prefix: Annotated[str, typer.Argument(help="Names that begin with this; all without it.")] = "",
    source: Annotated[str, typer.Option(help="Routers out of this topic.")] = "",
    dest: Annotated[str, typer.Option(help="Routers into this topic.")] = "",
) -> None:
    """List routers, with the number of records that they have forwarded."""
    with call.log() as log:
        states = log.routers(prefix, source=source, dest=dest)
    call.printer.rows(ROUTER_TITLES, map(router_row, states), none="no routers")


@app.command(name="set")
@on_topics
def put(
    call: CliCall,
    *,
    name: Name,
    source: Annotated[str, typer.Argument(help="The topic whose records are forwarded.")],
    dest: Annotated[str, typer.Argument(help="The topic that gets them.")],
    filter_: Annotated[
        str | None, typer.Option("--filter", help="Records with this tag; a* is a prefix, '' all records.")
    ] = None,
    exactly_once: Annotated[
        bool | None, typer.Option("--exactly-once/--at-least-once", help="Whether no copy is made twice.")
    ] = None,
    keep_node: Annotated[
        bool | None, typer.Option("--keep-node/--drop-node", help="Whether copies have the node.")
    ] = None,
    keep_tag: Annotated[bool | None, typer.Option("--keep-tag/--drop-tag", help="Whether copies have the tag.")] = None,
    create: Annotated[
        bool | None, typer.Option("--create/--no-create", help="Whether DEST is created if it does not exist.")
    ] = None,
    allow_cycle: Annotated[
        bool | None, typer.Option("--allow-cycle/--refuse-cycle", help="Whether a way may lead back to SOURCE.")
    ] = None,
) -> None:
    """Make a router, or change what is named of one. It forwards what comes from then on."""
    given: dict[str, Any] = {
        "preserve_node": keep_node,
        "preserve_tag": keep_tag,
        "create_dest": create,
        "allow_cycle": allow_cycle,
        "guarantee": None if exactly_once is None else "exactly_once" if exactly_once else "at_least_once",
    }
    with call.log(writes=True) as log:
        options = _options_if_there(log, name) | {key: value for key, value in given.items() if value is not None}
        if filter_ is not None:
            options["filter"] = filter_ or None
        result = log.put_router(name, source, dest, **options)
    done = "created" if result.created else "changed"
    call.printer.said(
        {"router": name, "created": result.created, "source": source, "dest": dest},
        f"{name}: {done}, {source} to {dest}",
    )


@app.command()
@on_topics
def rm(call: CliCall, name: Name) -> None:
    """Remove a router; its copies stay."""
    with call.log(writes=True) as log:
        result = log.delete_router(name)
    call.printer.said(
        {"router": name, "deleted": result.deleted}, f"{name}: {'removed' if result.deleted else 'was not there'}"
    )


def _options_if_there(log: AnyLog, name: str) -> dict[str, Any]:
    """Return a router's options; none, and so the defaults, if there is no such router."""
    try:
        options = log.router(name).config._asdict()
    except RequestError as error:
        if error.code != "router_not_found":
            raise
        return {}
    del options["source"], options["dest"]
    return options

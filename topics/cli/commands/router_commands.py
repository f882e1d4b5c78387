"""`topics router`: list, make and remove routers."""

from __future__ import annotations

from typing import Annotated

import typer

from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.output.shown_state import ROUTER_TITLES, router_row

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
    filter_: Annotated[str | None, typer.Option("--filter", help="Records with this tag; a* is a prefix.")] = None,
    exactly_once: Annotated[bool, typer.Option("--exactly-once", help="A copy is not made twice.")] = False,
    drop_node: Annotated[bool, typer.Option("--drop-node", help="Copies have no node.")] = False,
    drop_tag: Annotated[bool, typer.Option("--drop-tag", help="Copies have no tag.")] = False,
    no_create: Annotated[bool, typer.Option("--no-create", help="Refuse if DEST does not exist.")] = False,
    allow_cycle: Annotated[bool, typer.Option("--allow-cycle", help="Accept a way back to SOURCE.")] = False,
) -> None:
    """Make a router, or give it these settings. It forwards what comes from then on."""
    with call.log(writes=True) as log:
        result = log.put_router(
            name,
            source,
            dest,
            filter=filter_,
            preserve_node=not drop_node,
            preserve_tag=not drop_tag,
            create_dest=not no_create,
            allow_cycle=allow_cycle,
            guarantee="exactly_once" if exactly_once else "at_least_once",
        )
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

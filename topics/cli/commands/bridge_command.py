"""`topics bridge`: records carried to and from Kafka or JetStream (docs/outgrowing.md)."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from topics.cli.commands.cli_call import PATIENCE_S, CliCall, on_topics
from topics.cli.output.printer import count_text
from topics.clock import SystemClock
from topics.errors import TopicsError, UsageError

if TYPE_CHECKING:
    from topics.bridge.run_bridge import BridgeOptions

_OVERSIZE = ("stop", "skip")


@on_topics
def bridge(  # noqa: PLR0917 - typer makes options of them
    call: CliCall,
    topics: Annotated[str, typer.Option("--topics", help="Names by commas; 'orders*' takes in later topics, too.")],
    to: Annotated[str | None, typer.Option("--to", help="kafka://HOST:PORT or nats://HOST:PORT.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="The same, to carry from there to topics here.")] = None,
    id: Annotated[str, typer.Option("--id", help="Name of the bridge, to which its positions belong.")] = "topics",
    stream: Annotated[str, typer.Option(help="NATS: the stream; made if it is missing.")] = "topics",
    prefix: Annotated[str, typer.Option(help="NATS: the part of a subject before the topic's name.")] = "topics.",
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Kafka: above 1, the order is that of each tag.")
    ] = 1,
    replicas: Annotated[int, typer.Option(min=0, max=100, help="Copies of what is made; 0: the other side's.")] = 0,
    oversize: Annotated[str, typer.Option(help="A record that the other side cannot take: stop, or skip it.")] = "stop",
    once: Annotated[bool, typer.Option("--once", help="Carry up to the heads of now, and end.")] = False,
    values: Annotated[str, typer.Option(help="Of --from: auto (JSON, or else bytes), json or bytes.")] = "auto",
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Of --from: take topics here that others have written.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where each topic continues; change nothing.")
    ] = False,
    metrics: Annotated[str, typer.Option(help="HOST:PORT that shows metrics of Prometheus.")] = "",
    batch_records: Annotated[int, typer.Option(min=1, max=1_000_000, help="Records stored at once.")] = 10_000,
    memory_mb: Annotated[int, typer.Option(min=4, max=65_536, help="Megabytes of records in memory.")] = 64,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of the other side's client; repeatable.")
    ] = None,
) -> None:
    """Carry topics to Kafka or JetStream, or from there, exactly once (docs/outgrowing.md)."""
    from topics.bridge.incoming import VALUES  # noqa: PLC0415 - as below
    from topics.bridge.run_bridge import BridgeOptions  # noqa: PLC0415 - `topics --help` should not load it

    call.place.needs_server("bridge", "it follows what is written")
    if oversize not in _OVERSIZE:
        raise UsageError(f"--oversize is {oversize!r}: use {' or '.join(_OVERSIZE)}")
    if values not in VALUES:
        raise UsageError(f"--values is {values!r}: use one of {', '.join(VALUES)}")
    options = BridgeOptions(
        topics=topics,
        to=_side("--to", to),
        source=_side("--from", source),
        values=values,
        adopts=adopt,
        id=id,
        stream=_utf8("--stream", stream),
        prefix=_utf8("--prefix", prefix),
        partitions=partitions,
        replicas=replicas,
        is_once=once,
        is_look=dry_run,
        skips_oversize=oversize == "skip",
        batch_records=batch_records,
        memory_bytes=memory_mb << 20,
        settings=_pairs(settings or []),
        patience_s=PATIENCE_S if call.timeout is None else call.timeout,
    )
    if dry_run:
        (_show_in if source else _show)(call, options)
    else:
        _carry(call, options, _utf8("--metrics", metrics))


@contextmanager
def _answering() -> Iterator[None]:
    """Have a side that does not answer end a look with the remedy."""
    from topics.bridge.bridge_errors import SourceDownError, TargetDownError  # noqa: PLC0415 - as in `bridge`

    try:
        yield
    except (SourceDownError, TargetDownError) as error:
        raise TopicsError(f"{error}: start what does not answer, or mend --url, --to or --from") from error


def _show(call: CliCall, options: BridgeOptions) -> None:
    from topics.bridge.run_bridge import planned_out  # noqa: PLC0415 - as in `bridge`

    with call.log() as log, _answering():
        rows = planned_out(log, options, SystemClock())
        if not rows:
            raise UsageError("--topics matches no topic of the server: mend it")
        for row in rows:
            where = "from the start" if row.seq is None else f"above {row.seq}"
            left = row.head_seq if row.seq is None or row.is_recreated else row.head_seq - row.seq
            again = " (created again since)" if row.is_recreated else ""
            call.printer.said(
                {"topic": row.topic, "seq": row.seq, "head_seq": row.head_seq, "recreated": row.is_recreated},
                f"{row.topic}: {where}{again}, up to {count_text(left, 'record')}",
            )


def _show_in(call: CliCall, options: BridgeOptions) -> None:
    from topics.bridge.run_bridge import planned_in  # noqa: PLC0415 - as in `bridge`

    with call.log() as log, _answering():
        rows = planned_in(log, options, SystemClock())
        if not rows:
            raise UsageError("--topics matches no topic of which the other side has something: mend it")
        for name, left in sorted(rows.items()):
            call.printer.said({"from": name, "left": left}, f"{name}: up to {count_text(left, 'message')}")


def _carry(call: CliCall, options: BridgeOptions, metrics: str) -> None:
    """Carry until a signal ends it, or up to the heads."""
    from topics.bridge.bridge_numbers import BridgeNumbers  # noqa: PLC0415 - as in `bridge`
    from topics.bridge.run_bridge import carry  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    numbers, stop = BridgeNumbers(), threading.Event()
    with call.log() as log:
        if metrics:
            numbers.serve(metrics)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        is_done = carry(log, options, numbers, SystemClock(), stop)
    if options.is_once and not is_done:
        raise TopicsError("a signal ended the bridge before it had carried all: run it again, it continues there")


def _side(option: str, url: str | None) -> str:
    """Return the URL of the other side; "" if it was not given. Raises: UsageError, it is empty."""
    if url is not None and not url.strip():
        raise UsageError(f"{option} is {url!r}: use kafka://HOST:PORT or nats://HOST:PORT")
    return _utf8(option, url or "")


def _utf8(option: str, text: str) -> str:
    """Return a text. Raises: UsageError, it is no UTF-8: such bytes are surrogates here."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} is {text!r}, which is no UTF-8: leave out what is escaped") from None
    return text


def _pairs(texts: list[str]) -> dict[str, str]:
    """Return the values of --set by name. Raises: UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = _utf8("--set", text).partition("=")
        if not name or not equals:
            raise UsageError(f"--set is {text!r}: use NAME=VALUE")
        if name in found:
            raise UsageError(f"--set {name} is given twice: give it once")
        found[name] = value
    return found

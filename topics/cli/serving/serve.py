"""`topics serve`: runs the server, with settings from the environment and options over them."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from topics.cli.environment import costly_settings, odd_variables, settled
from topics.cli.exit_codes import options_named, start_or_refusal
from topics.cli.output.log_lines import log_to_stderr
from topics.errors import UsageError

_log = logging.getLogger("topics.cli")
CORE_PROGRAM = "topics.cli.serving.core_process"
ConfigFile = Annotated[str | None, typer.Option(help="File of settings, TOML; else TOPICS_CONFIG.")]


def as_variables(options: Mapping[str, object]) -> dict[str, str]:
    """Return the options given as the TOPICS_* variables that they override.

    Raises: UsageError for an empty option.
    """
    given = {name: str(value) for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not value.strip():
            option = name.lower().replace("_", "-").replace("allowed-hosts", "allowed-host")
            raise UsageError(f"--{option} is empty: give it a value, or leave it out")
    return {f"TOPICS_{name}": value for name, value in given.items()}


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Have Python's collector look for no garbage among the modules that load, since they stay.

    It would look 120 times. The server enables it when it is ready.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@start_or_refusal()
@without_collector()
def serve(  # noqa: PLR0917 - typer makes options of them
    config: ConfigFile = None,
    data_dir: Annotated[str | None, typer.Option(help="Data directory; created if missing.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind; may carry the port.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to bind; 0 picks a free one.")] = None,
    io: Annotated[str | None, typer.Option(help="auto, uring or portable.")] = None,
    commit: Annotated[str | None, typer.Option(help="auto, link, direct or dsync; `topics doctor` explains.")] = None,
    cores: Annotated[str | None, typer.Option(help="Processes that share the topics, or auto; experimental.")] = None,
    http_parser: Annotated[str | None, typer.Option(help="auto, httptools or h11.")] = None,
    port_file: Annotated[str | None, typer.Option(help="File that gets the bound host:port.")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="Additional Host to accept; repeatable.")] = None,
    sync_every_ms: Annotated[int | None, typer.Option(min=0, help="Interval of the sync of `disk` records.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text, or json: an object a line.")] = None,
    access_log: Annotated[str | None, typer.Option(help="File with a line for each answer; - for stdout.")] = None,
) -> None:
    """Serve topics over HTTP until SIGINT or SIGTERM.

    Every setting is also a TOPICS_* variable, and a key of the file --config (docs/settings.md).
    """
    # numpy's linear algebra starts threads that spin for a while; nothing here uses it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from topics.server.processes.composition import serve as run_server  # noqa: PLC0415 - `topics --help` should not load the server
    from topics.server.processes.serve_cores import serve_cores  # noqa: PLC0415 - likewise
    from topics.server.startup import wanted_cores  # noqa: PLC0415 - likewise

    options = {
        "CONFIG": config,
        "DATA_DIR": data_dir,
        "HOST": host,
        "PORT": port,
        "IO": io,
        "COMMIT": commit,
        "CORES": cores,
        "HTTP_PARSER": http_parser,
        "PORT_FILE": port_file,
        "ALLOWED_HOSTS": ",".join(allowed_host) if allowed_host else None,
        "SYNC_EVERY_MS": sync_every_ms,
        "LOG_LEVEL": log_level,
        "LOG_FORMAT": log_format,
        "ACCESS_LOG": access_log,
    }
    given = as_variables(options)
    settings, origins = settled(os.environ, given)
    log_to_stderr(settings.log_level, settings.log_format)
    for sentence in (*odd_variables({**os.environ, **given}), *costly_settings(settings)):
        _log.warning("%s", sentence)
    # The configuration is the only holder of the keys, and the server drops them from it.
    os.environ.pop("TOPICS_API_KEYS", None)
    with options_named(origins):
        if "cores" in origins:
            code = serve_cores(settings, wanted_cores(settings), CORE_PROGRAM)
        else:
            code = run_server(settings)  # a directory of several cores is refused
    raise typer.Exit(code)

"""The name under which `topics` is installed, and what an installation may lack.

`topics` itself is the name of another project.
"""

from __future__ import annotations

import sys

DISTRIBUTION = "topics-log"
_OF_THE_ENGINE = frozenset(
    {"cffi", "_cffi_backend", "h2", "httptools", "numpy", "prometheus_client", "wsproto", "xxhash"}
)


def install_command(extra: str) -> str:
    """Return the command that installs an extra: `arrow`, `spark`, `s3`, `zstd` or `bench`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def is_engine_missing(error: ImportError) -> bool:
    """Return whether an import failed because this installation is the client, without the engine.

    One of Python only has neither the C modules nor the packages that only the engine uses.
    """
    first, *_, last = (error.name or "").split(".") * 2
    return first in _OF_THE_ENGINE or (first == "topics" and last.startswith("_"))


def engine_missing(what: str, error: ImportError, platform: str = sys.platform) -> str:
    """Return the sentence for what needs the engine, with the remedy."""
    said = f"{what} needs the engine, and this installation is the client only (no module {error.name})"
    if not platform.startswith("linux"):
        return f"{said}: the engine runs on Linux; use a server there by topics.connect(url) or --url"
    return (
        f"{said}: install it by `pip install --force-reinstall PATH` with the path of a checkout, "
        "or of the wheel for Linux that `make wheels` writes there"
    )

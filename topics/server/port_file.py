"""The file that tells others where the server listens. Source: wire contract, R-LIFE-2."""

from __future__ import annotations

import contextlib
import os


def shown_address(address: tuple[str, int]) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_port_file(path: str, address: tuple[str, int]) -> None:
    """Writes the address without a newline; whoever reads sees all of it or the file before. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(shown_address(address))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

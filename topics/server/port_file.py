"""The file that tells others where the server listens. Source: wire contract, R-LIFE-2."""

from __future__ import annotations

import contextlib
import os


def shown_address(address: tuple[str, int]) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_port_file(path: str, address: tuple[str, int]) -> None:
    """Writes the address without a newline; whoever reads sees all of it or the file before. Raises OSError.

    Mode 0644, whatever the umask: if others could write to it, they would say where clients send their keys.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process that was killed, or a link that somebody put there
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(shown_address(address).encode("ascii"))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

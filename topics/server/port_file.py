"""The file with the address that the server listens on. Source: wire contract, R-LIFE-2."""

from __future__ import annotations

import contextlib
import os


def shown_address(address: tuple[str, int]) -> str:
    """Return `host:port`, with an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_port_file(path: str, address: tuple[str, int]) -> None:
    """Write the address, without a newline. A reader sees all of it or the previous file.

    The mode is 0644 whatever the umask: a user who could write the file could choose where clients
    send their keys. Raises: OSError, which names `path`.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            # The file of a process that was killed, or a link that another user created.
            os.unlink(temporary)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(shown_address(address).encode("ascii"))
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise type(error)(error.errno, error.strerror, path) from None

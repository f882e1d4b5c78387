"""Blocking calls of start-up and checkpoint, shared by all rings on a real kernel."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from typing_extensions import Buffer

from topics.common.memory import page_aligned

SMALLEST_DIRECT_BYTES = 4096
"""The physical block of current disks: a torn write leaves whole blocks of this size."""
LARGEST_DIRECT_BYTES = 65_536
_PROBES = 4
_OPENED = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})
"""Kinds of paths that an open does not wait for: it would for a pipe, and refuses a link."""
_INT = struct.Struct("=i")
"""A descriptor in a datagram."""
_locked_by: dict[int, int] = {}
"""The process that took a lock, by the lock's descriptor."""


def _keep_alive(sock: socket.socket, idle_s: int) -> None:
    """Let TCP probe after `idle_s`; four probes without an answer, over as long again, end it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, -(-idle_s // _PROBES))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket that is bound to the address. Raises: OSError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:  # the latter: no host can have the name
        why = getattr(error, "strerror", None) or "no host has such a name"
        raise OSError(errno.EADDRNOTAVAIL, f"cannot resolve the address to listen on: {why}", host) from error
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with _named(f"{host}:{port}"):
            found.bind(address)
    except OSError:
        found.close()
        raise
    return found


@contextlib.contextmanager
def _named(address: str) -> Iterator[None]:
    """Let an OSError name the address."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), address) from error


class BlockingCalls:
    """Mixin of the rings on a real kernel. All calls raise OSError with errno and filename."""

    def listen(
        self, host: str, port: int, backlog: int, keepalive_ms: int = 0, *, shared: bool = False
    ) -> tuple[int, tuple[str, int]]:
        """Bind and listen. Return the descriptor and the bound (host, port).

        Accepted descriptors inherit TCP_NODELAY and keep-alive from the listening one.
        """
        with _bound(host, port, shared=shared) as listener:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if keepalive_ms:
                _keep_alive(listener, -(-keepalive_ms // 1000))
            with _named(f"{host}:{port}"):
                listener.listen(backlog)
            bound = listener.getsockname()
            return listener.detach(), (bound[0], bound[1])

    def bind_port(self, host: str, port: int) -> tuple[int, tuple[str, int]]:
        with _bound(host, port, shared=True) as holder:
            # Otherwise another program could bind the address, too, and listen on it.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            bound = holder.getsockname()
            return holder.detach(), (bound[0], bound[1])

    def peer_of(self, fd: int) -> tuple[str, int]:
        """Return the address of the other side.

        Raises: OSError for a descriptor that is closed, no socket or not connected.
        """
        name = _borrowed(fd).getpeername()
        return (name[0], name[1]) if isinstance(name, tuple) else ("local", 0)

    def send_datagram(self, address: str, data: bytes) -> int:
        try:
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
                _short_path(address) as short,
            ):
                sender.sendto(data, short)
        except OSError as error:
            return -(error.errno or errno.EINVAL)
        return 0

    def stream_pair(self) -> tuple[int, int]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        return one.detach(), other.detach()

    def open_mailbox(self, path: str) -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as mailbox:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with _short_path(path) as short:
                mailbox.bind(short)
            return mailbox.detach()

    def send_descriptor(self, address: str, fd: int, data: bytes) -> int:
        assert data, "a datagram without bytes carries no descriptor"
        try:
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
                _short_path(address) as short,
            ):
                sender.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(fd))], 0, short)
        except OSError as error:
            return -(error.errno or errno.EINVAL)
        return 0

    def take_descriptor(self, mailbox: int, size: int) -> tuple[int, bytes]:
        borrowed = socket.socket(fileno=mailbox)
        try:
            # `socket.recv_fds` of Python 3.11 ignores its flags
            data, passed, flags, _ = borrowed.recvmsg(size, socket.CMSG_LEN(_INT.size), socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            return -(error.errno or errno.EIO), b""
        finally:
            borrowed.detach()
        if flags & socket.MSG_CTRUNC:
            return -errno.EMFILE, b""
        fd = _INT.unpack(passed[0][2])[0] if passed else -errno.EBADMSG
        if flags & socket.MSG_TRUNC:
            if fd >= 0:
                os.close(fd)
            return -errno.EMSGSIZE, b""
        return fd, data

    def run_in_thread(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="topics-blocking-call", daemon=True).start()

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise
            return False
        return True

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def link(self, path: str, new: str) -> None:
        os.link(path, new, follow_symlinks=False)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def file_size(self, path: str) -> int:
        seen = os.lstat(path)
        if stat.S_IFMT(seen.st_mode) not in _OPENED:
            raise OSError(errno.EINVAL, "it is no regular file: move it away", path)
        return seen.st_size

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def lock(self, path: str, *, shared: bool = False) -> int:
        """Take an flock. It ends with this process and with children that have its descriptor."""
        # A pipe of that name is not waited for.
        flags = os.O_NONBLOCK | (os.O_RDONLY if shared else os.O_CREAT | os.O_RDWR)
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        _locked_by[fd] = os.getpid()
        return fd

    def unlock(self, fd: int) -> None:
        # Children that were just forked hold copies of the descriptor, which would keep the lock.
        # A child closes its copy only, since the lock is its parent's.
        if _locked_by.pop(fd) == os.getpid():
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    write_address = 0

    def write_now(self, fd: int, buffer: Buffer, offset: int, *, dsync: bool) -> int:
        try:
            return os.pwritev(fd, (buffer,), offset, os.RWF_DSYNC) if dsync else os.pwrite(fd, buffer, offset)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def write_parts_now(self, fd: int, parts: Sequence[Buffer], offset: int) -> int:
        try:
            return os.pwritev(fd, parts, offset)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def sync_now(self, fd: int) -> int:
        try:
            os.fdatasync(fd)
        except OSError as error:
            return -(error.errno or errno.EIO)
        return 0

    def read_now(self, fd: int, buffer: Buffer, offset: int) -> int:
        try:
            return os.preadv(fd, (buffer,), offset)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def free_bytes(self, path: str) -> int:
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def volume_bytes(self, path: str) -> int:
        space = os.statvfs(path)
        return space.f_blocks * space.f_frsize

    def direct_block_bytes(self, path: str) -> int:
        """Return the smallest block that O_DIRECT accepts in this directory; 0 if it accepts none.

        The call writes an unnamed file in the directory with O_DIRECT, at each alignment in turn.
        On a full disk it reads a hole of the file instead, because reads that bypass the page cache
        need the size there, too.
        """
        try:
            fd = os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT, 0o600)
        except OSError:
            return 0
        try:
            size = SMALLEST_DIRECT_BYTES
            with page_aligned(LARGEST_DIRECT_BYTES) as block:
                while size <= LARGEST_DIRECT_BYTES:
                    with memoryview(block) as view, view[:size] as part:
                        if _is_direct(fd, part):
                            return size
                    size *= 2
            return 0
        finally:
            os.close(fd)

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


def _is_direct(fd: int, part: memoryview) -> bool:
    """Return whether a descriptor that is open with O_DIRECT accepts parts of this size."""
    size = len(part)
    try:
        return os.pwrite(fd, part, size) == size
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return False
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 2 * size)
        return os.preadv(fd, [part], size) == size
    return False


@contextlib.contextmanager
def _short_path(path: str) -> Iterator[str]:
    """Yield another name of a path, because the name of a socket has 107 bytes at most.

    Of "@" and an abstract name, the one that the kernel knows.
    """
    if path.startswith("@"):
        yield f"\0{path[1:]}"
        return
    directory = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


class _borrowed:
    """A socket object over a descriptor that it does not own."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def getpeername(self) -> object:
        borrowed = socket.socket(fileno=self.fd)
        try:
            return borrowed.getpeername()
        finally:
            borrowed.detach()

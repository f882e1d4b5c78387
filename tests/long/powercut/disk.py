"""A real ext4 on a loop device on a logging FUSE disk (disk.c): what reached the disk, in which order, is known.

Needs root, /dev/fuse, loop devices, mkfs.ext4 and libfuse3's header; `missing` names what is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
_MOUNT_S_MAX = 30.0
_IDLE_S = 0.3


def missing() -> str:
    """One sentence with the remedy when this machine cannot cut the power of a disk, else the empty string."""
    if os.geteuid() != 0:
        return "power cuts need root: they mount file systems"
    if not os.path.exists("/dev/fuse"):
        return "power cuts need /dev/fuse"
    if not os.path.exists("/dev/loop-control"):
        return "power cuts need loop devices"
    for command, package in (("cc", "gcc"), ("mkfs.ext4", "e2fsprogs"), ("fusermount3", "fuse3"), ("mount", "mount")):
        if shutil.which(command) is None:
            return f"power cuts need {command}: apt-get install {package}"
    if not os.path.exists("/usr/include/fuse3/fuse.h"):
        return "power cuts need <fuse3/fuse.h>: apt-get install libfuse3-dev"
    return ""


def build(directory: Path) -> Path:
    """Compiles disk.c; returns the program."""
    program = directory / "powercut-disk"
    flags = ["-O2", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3"]
    run("cc", *flags, str(HERE / "disk.c"), "-o", str(program), "-lfuse3")
    return program


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def unmount(mountpoint: Path) -> None:
    """Unmount, once no process is in it: the kernel drops the files of a dead process's ring with a delay."""
    until = time.monotonic() + _MOUNT_S_MAX
    while subprocess.run(("umount", str(mountpoint)), capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            run("umount", "--lazy", str(mountpoint))
            return
        time.sleep(0.02)


class LoggedDisk:
    """A fresh ext4, mounted at `mountpoint`, until the `with` block ends; then `log` is whole."""

    def __init__(self, program: Path, directory: Path, *, megabytes: int = 64, options: str = "defaults") -> None:
        self._program = program
        self.log = directory / "disk.log"
        self._fuse = directory / "fuse"
        self.mountpoint = directory / "ext4"
        self.megabytes = megabytes
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._loop = ""
        self._mounted = False

    def __enter__(self) -> LoggedDisk:
        try:
            self._mount()
        except BaseException:
            self._unmount()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._unmount()

    def _mount(self) -> None:
        self._fuse.mkdir(exist_ok=True)
        self.mountpoint.mkdir(exist_ok=True)
        command = [str(self._program), str(self.log), str(self.megabytes), "-f", "-s", str(self._fuse)]
        self._process = subprocess.Popen(command)
        until = time.monotonic() + _MOUNT_S_MAX
        while not (self._fuse / "disk").exists():
            assert self._process.poll() is None, "the FUSE disk did not start"
            assert time.monotonic() < until, "the FUSE disk did not appear"
            time.sleep(0.01)
        self._loop = run("losetup", "--find", "--show", "--direct-io=on", str(self._fuse / "disk")).strip()
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._loop)
        run("mount", "-o", self._options, self._loop, str(self.mountpoint))
        self._mounted = True

    def _unmount(self) -> None:
        if self._mounted:
            unmount(self.mountpoint)
        if self._loop:
            run("losetup", "--detach", self._loop)
        if self._process is not None:
            subprocess.run(("fusermount3", "-u", "-z", str(self._fuse)), capture_output=True, check=False)
            self._process.wait(30)

    def position(self) -> int:
        """Entries in the log so far: what has been answered by now does not depend on any later one."""
        writes, flushes = (self._fuse / "ctl").read_text().split()
        return int(writes) + int(flushes)

    def wait_until_idle(self) -> None:
        """Wait until the disk is idle, so that the next fault strikes a call of this process."""
        until = time.monotonic() + _MOUNT_S_MAX
        seen, since = self.position(), time.monotonic()
        while time.monotonic() < min(since + _IDLE_S, until):
            time.sleep(0.02)
            if (now := self.position()) != seen:
                seen, since = now, time.monotonic()

    def control(self, order: str) -> None:
        """Set the disk's faults: `eio AFTER COUNT`, `eioflush COUNT`, `lie` or `honest`."""
        with open(self._fuse / "ctl", "w") as control:
            control.write(order)


class Mounted:
    """An image mounted for as long as the `with` block lasts; ext4 replays its journal first.

    Where the cut has torn ext4's own superblock, e2fsck takes a copy of it, as it would when the machine starts.
    """

    def __init__(self, image: Path, mountpoint: Path) -> None:
        self._image = image
        self.mountpoint = mountpoint

    def __enter__(self) -> Path:
        self.mountpoint.mkdir(exist_ok=True)
        mount = ("mount", "-o", "loop", str(self._image), str(self.mountpoint))
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            mended = subprocess.run(("e2fsck", "-fy", str(self._image)), capture_output=True, text=True, check=False)
            assert mended.returncode in {0, 1}, f"e2fsck: {mended.stdout}{mended.stderr}"
            run(*mount)
        return self.mountpoint

    def __exit__(self, *_: object) -> None:
        unmount(self.mountpoint)

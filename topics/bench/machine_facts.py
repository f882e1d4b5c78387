"""The machine, the programs and the directory of a run, as its result records them."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path

from topics import __version__
from topics.bench.hidden_keys import hidden_words
from topics.bench.processes import run_to_end


def machine_facts(directory: Path) -> dict[str, object]:
    """Return what a reader needs in order to repeat a run. directory: where its data is."""
    mount, kind = file_system(directory)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not shown",
        "load_average": os.getloadavg()[0],
        "file_system": kind,
        "device": mount,
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}",
        "topics": __version__,
        "commit": _commit(),
    }


def machine_warnings(facts: dict[str, object]) -> list[str]:
    """Return sentences about a machine on which figures mean less than they seem to."""
    found = []
    if facts["file_system"] in ("tmpfs", "ramfs"):
        found.append("the data is in memory (tmpfs): a sync costs nothing there; name a directory on a disk with --dir")
    cores, load = facts["cores"], facts["load_average"]
    assert isinstance(cores, int)
    assert isinstance(load, float)
    if load > cores / 2:
        found.append(f"other programs run here (load average {load:.1f} on {cores} cores): they share these figures")
    return found


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or "not shown"


def file_system(directory: Path) -> tuple[str, str]:
    """Return device and type of the file system that has a directory."""
    path = str(directory.resolve())
    best = ("", "not shown", "not shown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind, *_ = line.split()
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, device, kind)
    return best[1], best[2]


def _commit() -> str:
    """The commit of a source tree; empty for an installed package."""
    tree = Path(__file__).resolve().parents[2]
    if not (tree / ".git").exists():
        return ""
    code, out, _ = run_to_end(["git", "-C", str(tree), "describe", "--always", "--dirty"], seconds=10)
    return out.strip() if code == 0 else ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def command_line() -> str:
    """Return the command as a shell takes it again, without the keys."""
    return shlex.join(hidden_words(sys.argv))

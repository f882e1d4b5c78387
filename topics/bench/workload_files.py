"""The workloads that come with the package, and those of a path."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from topics.bench.workload import Workload, parse_workload
from topics.errors import UsageError

SUFFIX = ".toml"


def built_in() -> list[Workload]:
    """Return the workloads of the package, by family and name."""
    folder = files("topics.bench") / "workloads"
    found = [
        parse_workload(entry.read_text(encoding="utf-8"), entry.name)
        for entry in folder.iterdir()
        if entry.name.endswith(SUFFIX)
    ]
    return sorted(found, key=lambda workload: (workload.family, workload.name))


def find_workload(name: str) -> Workload:
    """Return the workload of a name, or of a path to a file of one's own.

    Raises: UsageError if neither is there, or the file has a value that is not allowed.
    """
    if "/" in name or name.endswith(SUFFIX):
        try:
            return parse_workload(Path(name).read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{name}: {error}: name a file of TOML, or one of `topics bench list`") from None
    known = {workload.name: workload for workload in built_in()}
    if name not in known:
        raise UsageError(f"there is no workload {name!r}: `topics bench list` shows them, or name a file of TOML")
    return known[name]

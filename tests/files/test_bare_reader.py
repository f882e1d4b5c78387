"""The room works where nothing but pyarrow, numpy, xxhash and a zip of the package is there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.files.files_world import COLD, HOT, FilesWorld
from tests.sim.world.sim_file import SimFile
from topics.store.layouts.directory_names import COLD_MARK_NAME

ROOT = Path(__file__).resolve().parents[2]
UPSTAIRS = ["topics.loop", "topics.uring", "topics.engine", "topics.http", "topics.server", "topics.embedded"]
LIBRARIES = [
    *("msgspec", "cffi", "_cffi_backend", "typing_extensions", "httptools", "h11", "h2", "wsproto"),
    *("prometheus_client", "typer", "rich", "pandas", "pytest"),
]
READ = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in BLOCKED):
            raise ImportError(f"{name} is blocked")

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Blocked())
sys.path[:0] = [sys.argv[2]]
from topics.files import COLUMNS, open_directory, read_pieces
from topics.files.texts import best_decoder

directory = open_directory(sys.argv[3], sys.argv[4])
rows = {}
for name, topic in directory.topics.items():
    batches = list(read_pieces(directory.location, topic.pieces, columns=["seq", "tag", "data"]))
    rows[name] = [list(row.values()) for batch in batches for row in batch.to_pylist()]
loaded = sorted(one for one in BLOCKED if one in sys.modules)
print(json.dumps({"decoder": best_decoder().name, "rows": rows, "loaded": loaded}))
"""


def dumped(world: FilesWorld, to: Path) -> None:
    """The simulated disk as files."""
    disk = world.ring.disk

    def dump(path: str) -> None:
        for name in disk.list_directory(path):
            node = disk.find(f"{path}/{name}")
            if isinstance(node, SimFile):
                (to / path).mkdir(parents=True, exist_ok=True)
                (to / path / name).write_bytes(bytes(node.live))
            else:
                dump(f"{path}/{name}")

    dump(HOT)
    dump(COLD)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[object]]]]:
    """A data directory with all kinds of files on a real file system, and its records."""
    world = FilesWorld(1, pack_run_bytes=2000)
    for number in range(8):
        world.append(*range(33), name="big", tag="a")
        world.append(number, name="small", tag="ü" if number % 2 else None)
        world.checkpoint()
    world.delete(before_seq=5, name="big")
    world.checkpoint()
    to = tmp_path_factory.mktemp("alone")
    dumped(world, to)
    assert (to / COLD / COLD_MARK_NAME).exists()
    return to, {
        name: [[record[0], record[2], record[4]] for record in world.diff_all(name).records]
        for name in ("big", "small")
    }


def read(blocked: list[str], package: Path, root: Path) -> dict[str, object]:
    command = [sys.executable, "-W", "error", "-c", READ, json.dumps(blocked), str(package)]
    done = subprocess.run(
        [*command, str(root / HOT), str(root / COLD)], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_needs_no_ring_no_loop_and_no_engine(directory: tuple[Path, dict[str, list[list[object]]]]) -> None:
    root, rows = directory
    assert read(UPSTAIRS, ROOT, root) == {"decoder": "C", "rows": rows, "loaded": []}


def test_a_zip_of_the_package_is_enough(directory: tuple[Path, dict[str, list[list[object]]]], tmp_path: Path) -> None:
    """Read with what `spark-submit --py-files` ships: no C module, and none of the libraries that a server needs."""
    root, rows = directory
    package = tmp_path / "topics.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in (ROOT / "topics").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    assert read([*UPSTAIRS, *LIBRARIES], package, root) == {"decoder": "numpy", "rows": rows, "loaded": []}

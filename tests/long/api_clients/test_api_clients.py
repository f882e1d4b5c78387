"""Clients that generators make of /openapi.json, used against a server. `make api-clients` runs this."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld
from tests.server.clients.test_javascript import node

GENERATORS = Path(__file__).resolve().parents[3] / ".venv" / "generators"
HERE = Path(__file__).parent
COMPILER = {
    "strict": True,
    "target": "es2022",
    "module": "nodenext",
    "moduleResolution": "nodenext",
    "types": ["node"],
    "outDir": "out",
}

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveWorld]:
    """A server, whose description is in openapi.json of its directory."""
    world = LiveWorld(tmp_path)
    world.start()
    (tmp_path / "openapi.json").write_text(world.request("GET", "/openapi.json").text)
    yield world
    world.close()


def url(world: LiveWorld) -> str:
    return f"http://127.0.0.1:{world.address[1]}"


def run(directory: Path, *command: str) -> str:
    """Return what a command prints; the programs of the generators are found first."""
    path = f"{GENERATORS / 'bin'}:{GENERATORS / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=directory, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def needed(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path.name} is not here: `make api-clients` installs it")


def test_openapi_python_client_makes_a_client_that_works(world: LiveWorld, tmp_path: Path) -> None:
    needed(GENERATORS / "bin" / "openapi-python-client")
    arguments = ("--path", "openapi.json", "--output-path", "topics_api", "--meta", "none")
    said = run(tmp_path, "openapi-python-client", "generate", *arguments)
    assert "Warning" not in said, "a schema or an operation that it leaves out"
    shutil.copy(HERE / "use_generated.py", tmp_path)
    assert run(tmp_path, "python", "use_generated.py", url(world)) == "done\n"


def test_openapi_typescript_makes_types_that_a_strict_program_compiles_with(world: LiveWorld, tmp_path: Path) -> None:
    needed(GENERATORS / "node_modules" / ".bin" / "openapi-typescript")
    (tmp_path / "node_modules").symlink_to(GENERATORS / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER, "include": ["use_generated.ts"]}))
    shutil.copy(HERE / "use_generated.ts", tmp_path)
    run(tmp_path, "openapi-typescript", "openapi.json", "-o", "topics.d.ts", "--default-non-nullable", "false")
    run(tmp_path, "tsc")
    assert run(tmp_path, node(), "out/use_generated.js", url(world)) == "done\n"

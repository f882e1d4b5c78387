"""The arrows between the rooms, checked: each package imports only what lies below it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "topics"
COMMON = {"errors", "clock", "config", "memory", "metrics", "names", "tuples"}
BELOW: dict[str, set[str]] = {
    "uring": set(),
    "loop": {"uring"},
    "store": {"loop"},
    "files": {"store"},
    "spark": {"files"},
    "pipelines": {"files", "spark"},
    "engine": {"store", "loop"},
    "embedded": {"engine", "store", "loop"},
    "http": {"engine"},
    "ws": {"engine"},
    "server": {"http", "ws", "engine", "store", "loop", "uring"},
    "cli": {"server", "http", "pipelines", "engine", "store", "loop", "uring"},
}
SANS_IO = ("http", "ws")
FORBIDDEN_MODULES = {"socket", "select", "selectors", "asyncio", "time"}


def imported_rooms(tree: ast.AST) -> Iterator[str]:
    """ "store" for `topics.store.wal.sharded_log`, for every import statement of a module."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "topics" else [f"topics.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "topics" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("package", sorted(BELOW))
def test_each_package_imports_only_what_lies_below_it(package: str) -> None:
    allowed = BELOW[package] | {package} | COMMON
    for path in (ROOT / package).rglob("*.py"):
        for room in imported_rooms(ast.parse(path.read_text())):
            assert room in allowed | {"__version__"}, f"{path} imports topics.{room}"


def test_the_page_about_the_rooms_has_each_of_them_and_the_same_arrows() -> None:
    page = (ROOT.parent / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)/` \| .* \| ([^|]*) \|$", page, re.M)
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == BELOW
    for path in ROOT.glob("*/*/__init__.py"):
        assert f"| `{path.parent.relative_to(ROOT)}/` |" in page


def test_nothing_turns_data_into_code() -> None:
    """No pickle, no eval, no shell: what comes over the network or from the disk stays data."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {"pickle", "marshal", "shelve", "subprocess", "yaml"} & {n.split(".")[0] for n in names}, (
                    path
                )
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, path


@pytest.mark.parametrize("module", sorted(COMMON))
def test_the_common_modules_import_no_room(module: str) -> None:
    path = ROOT / f"{module}.py"
    assert set(imported_rooms(ast.parse(path.read_text()))) <= COMMON


@pytest.mark.parametrize("package", SANS_IO)
def test_protocol_rooms_hold_no_socket_no_clock_and_no_async(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{path} is async"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not FORBIDDEN_MODULES & {name.split(".")[0] for name in names}, f"{path} imports {names}"

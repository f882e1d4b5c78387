"""The arrows between the rooms, checked: each package imports only what is below it."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.project.structure.trees import TOPICS, nodes

ROOT = TOPICS
COMMON = {"errors", "clock", "config", "common"}
BELOW: dict[str, set[str]] = {
    "common": set(),
    "client": set(),
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
    "bench": {"embedded"},
    "bridge": {"client"},
    "cli": {"server", "http", "pipelines", "bench", "bridge", "embedded", "engine", "store", "loop", "uring", "client"},
}
INSIDE: dict[str, dict[str, set[str]]] = {
    "common": {"values": {"topic_names"}},
    "client": {"server_calls": {"attempts", "exchange", "parsing"}},
    "embedded": {"driving": set(), "appends": {"driving"}, "bucket": {"restore_call"}},
    "store": {
        "format": set(),
        "layouts": {"format"},
        "disk": {"format", "layouts"},
        "in_memory": {"format"},
        "cores": {"disk", "format", "layouts", "recovery", "segments"},
        "segments": {"disk", "format", "layouts"},
        "read": {"disk", "format", "in_memory"},
        "commits": {"format", "in_memory"},
        "wal": {"commits", "disk", "format", "in_memory"},
        "recovery": {"disk", "format", "layouts", "segments"},
        "checkpoint": {"commits", "disk", "format", "layouts", "read", "segments", "wal"},
        "repair": {"archive", "cores", "disk", "format", "layouts", "recovery", "segments"},
        "backup": {"checkpoint", "cores", "disk", "format", "layouts", "segments"},
        "archive": {"backup", "cores", "disk", "format", "layouts", "recovery", "wal"},
        "mirror": {"archive", "backup", "cores", "disk", "format"},
    },
    "engine": {
        "json": set(),
        "values": {"json"},
        "index": {"values"},
        "state": {"index", "values"},
        "shared": {"index", "state", "values"},
        "bodies": {"json", "state", "values"},
        "write": {"bodies", "index", "shared", "state", "values"},
        "read": {"index", "shared", "state", "values", "write"},
        "scheduling": {"state", "values"},
        "delivery": {"read", "state", "values"},
        "queue": {"index", "json", "read", "shared", "state", "values", "write"},
        "readers": {"read", "shared", "state", "values", "write"},
        "routers": {"index", "json", "read", "shared", "state", "values", "write"},
        "producers": {"queue", "read", "routers", "shared", "state", "values", "write"},
        "recovery": {"index", "queue", "routers", "shared", "state", "values", "write"},
        "moves": {"shared", "state", "stored_engine"},
    },
    "http": {
        "wire": set(),
        "access": {"wire"},
        "pages": set(),
        "openapi": {"access", "pages", "wire"},
        "streams": {"wire"},
        "plan": {"access", "openapi", "streams", "wire"},
        "http1": {"access", "plan", "wire"},
        "http2": {"access", "plan", "wire"},
        "handlers": {"access", "openapi", "pages", "plan", "streams", "wire"},
        "lane": {"access", "handlers", "http1", "plan", "protocol_choice", "wire"},
        "relay": {"access", "handlers", "lane", "plan", "streams", "wire"},
        "spanning": {"access", "handlers", "plan", "relay", "streams", "wire"},
    },
    "loop": {"portable": {"ring"}, "doors": {"connection", "operations", "ring", "streams", "timers", "traffic"}},
    "server": {
        "cores": set(),
        "processes": {
            "access_log_file",
            "app",
            "cores",
            "gate",
            "heap",
            "port_file",
            "process_numbers",
            "service_manager",
            "startup",
        },
    },
    "bridge": {
        "jetstream": {"bridge_errors", "bridge_messages", "incoming", "record_messages", "side_url", "topic_source"},
        "kafka": {"bridge_errors", "bridge_messages", "incoming", "record_messages", "topic_source"},
    },
    "bench": {
        "load": set(),
        "results": {"load", "outcome", "sides", "workload"},
        "report": {"load", "results"},
        "topics_server": {"load", "outcome", "processes", "round_checks", "sides", "workload"},
        "peers": {"load", "outcome", "processes", "round_checks", "sides", "topics_server", "workload"},
    },
    "spark": {
        "reading": {"client", "errors", "options", "schema"},
        "writing": {"client", "errors", "options", "schema"},
    },
    "pipelines": {"values": {"seqs"}, "target": {"errors", "seqs", "values"}},
    "cli": {
        "output": set(),
        "places": {"environment", "exit_codes"},
        "commands": {"exit_codes", "output", "places"},
        "serving": {"environment", "exit_codes", "output"},
        "backups": {"commands", "exit_codes", "output", "places"},
    },
}
"""By room, what each of its folders may import of the rest of it: folders, and modules beside them. Those modules may
import all folders."""
SANS_IO = ("http", "ws")
STARTS_PROGRAMS = {ROOT / "bench/processes.py", ROOT / "cli/commands/job_runner.py"}
"""The modules that may: servers and peers of a bench, and the command that a person gives to `topics queue work`. They
use no shell, and take no program from the network or the disk."""
FORBIDDEN_MODULES = {"socket", "select", "selectors", "asyncio", "time"}


def imported_modules(statements: Iterable[ast.AST]) -> Iterator[str]:
    """`store.wal.shard` for `topics.store.wal.shard`, with each name of it; imports that only types need count, too."""
    for node in statements:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix("topics.") for name in names if name.startswith("topics."))


def imported_rooms(path: Path) -> Iterator[str]:
    """ "store" for `topics.store.wal.shard`, for every import statement of a module."""
    yield from (name.partition(".")[0] for name in imported_modules(nodes(path)))


def included_files(source: Path) -> Iterator[Path]:
    """The files of this project that a C file includes."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', source.read_text(), re.M):
        yield (source.parent / name).resolve().relative_to(ROOT)


def c_files() -> list[Path]:
    """Without what cffi makes of them."""
    return [path for path in (*ROOT.rglob("*.c"), *ROOT.rglob("*.h")) if not path.name.startswith("_")]


def packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def test_the_arrows_name_every_room_and_every_folder_of_a_room() -> None:
    assert packages(ROOT) == set(BELOW)
    folders = {room: packages(ROOT / room) for room in BELOW}
    assert {room: names for room, names in folders.items() if names} == {room: set(INSIDE[room]) for room in INSIDE}


@pytest.mark.parametrize("package", sorted(BELOW))
def test_each_package_imports_only_what_lies_below_it(package: str) -> None:
    allowed = BELOW[package] | {package} | COMMON
    for path in (ROOT / package).rglob("*.py"):
        for room in imported_rooms(path):
            assert room in allowed | {"__version__"}, f"{path} imports topics.{room}"


@pytest.mark.parametrize("package", sorted(INSIDE))
def test_each_folder_imports_only_what_lies_below_it_in_its_room(package: str) -> None:
    for folder, below in INSIDE[package].items():
        for path in (ROOT / package / folder).rglob("*.py"):
            for name in imported_modules(nodes(path)):
                room, inner, *_ = [*name.split("."), ""]
                assert room != package or inner in below | {folder}, f"{path} imports topics.{name}"


def test_no_two_folders_of_a_room_import_each_other_however_indirectly() -> None:
    for package, folders in INSIDE.items():
        left = {folder: {one for one in below if one in folders} for folder, below in folders.items()}
        while left:
            lowest = [folder for folder, below in left.items() if not below & set(left)]
            assert lowest, f"{package}: a circle among {sorted(left)}"
            for folder in lowest:
                del left[folder]


def test_c_files_include_only_what_lies_below_them() -> None:
    for path in c_files():
        room, folder, *_ = path.relative_to(ROOT).parts
        for target in included_files(path):
            assert (ROOT / target).exists(), f"{path} includes {target}"
            other, inner, *_ = target.parts
            if other != room:
                assert other in BELOW[room], f"{path} includes {target}"
            elif inner != folder and folder in INSIDE.get(room, {}):
                assert inner in INSIDE[room][folder], f"{path} includes {target}"


@pytest.mark.parametrize("room", ["uring", "loop", "store"])
def test_the_rooms_below_the_engine_know_no_protocol(room: str) -> None:
    """Neither names of Python nor the code of C: limits of HTTP are those of http/."""
    protocol = re.compile("http|gzip|websocket", re.IGNORECASE)
    names = {
        f"{path}: {name}"
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))
        if isinstance(name, str) and protocol.search(name)
    }
    for path in c_files():
        if path.relative_to(ROOT).parts[0] == room:
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
            names |= {f"{path}: {name}" for name in protocol.findall(code)}
    assert not names


def test_the_pages_about_the_rooms_have_each_of_them_and_the_same_arrows() -> None:
    page = (ROOT.parent / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)/` \| .* \| ([^|]*) \|$", page, re.M)
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == BELOW
    page = (ROOT.parent / "docs" / "internals" / "rooms.md").read_text()
    rows = re.findall(r"^\| `([a-z]+/[a-z0-9_]+)/` \| .* \| ([^|]*) \|$", page, re.M)
    assert {room: set(re.findall(r"`(\w+)`", below)) for room, below in rows} == {
        f"{package}/{folder}": below for package, folders in INSIDE.items() for folder, below in folders.items()
    }


def test_nothing_turns_data_into_code() -> None:
    """No pickle, no eval, no shell: what comes over the network or from the disk stays data."""
    for path in ROOT.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                wrong = {"pickle", "marshal", "shelve", "yaml"}
                if path not in STARTS_PROGRAMS:
                    wrong.add("subprocess")
                assert not wrong & {n.split(".")[0] for n in names}, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, path


@pytest.mark.parametrize("module", sorted(COMMON))
def test_the_common_modules_import_no_room(module: str) -> None:
    paths = [ROOT / f"{module}.py"] if module != "common" else list((ROOT / module).rglob("*.py"))
    for path in paths:
        assert set(imported_rooms(path)) <= COMMON, path


@pytest.mark.parametrize("package", SANS_IO)
def test_protocol_rooms_hold_no_socket_no_clock_and_no_async(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in nodes(path):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{path} is async"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not FORBIDDEN_MODULES & {name.split(".")[0] for name in names}, f"{path} imports {names}"

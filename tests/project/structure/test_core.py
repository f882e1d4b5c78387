"""The parts of the engine name what they take of its shared state: Protocols whose names end with `Core`.

So do the parts of a server of the service of HTTP, if they do not handle requests: `...Service`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.project.structure.test_layers import imported_modules
from tests.project.structure.trees import modules, name_of, nodes


@cache
def protocols() -> dict[str, tuple[Path, ast.ClassDef]]:
    return {
        node.name: (path, node)
        for path in modules("engine")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Core") and node.name != "Core"
    }


def fields(node: ast.ClassDef) -> set[str]:
    """The fields that the class itself names."""
    return {ast.unparse(line.target) for line in node.body if isinstance(line, ast.AnnAssign)}


def inherited(node: ast.ClassDef) -> set[str]:
    bases = [protocols()[base.id][1] for base in node.bases if isinstance(base, ast.Name) and base.id in protocols()]
    return set().union(*(fields(base) | inherited(base) for base in bases))


def knowing(module: str, name: str) -> set[str]:
    """The modules that import a class, or its module, or that class from a module that has imported it."""
    found = set()
    for path in modules():
        for imported in imported_modules(nodes(path)):
            last = imported.rpartition(".")[2]
            if imported == module or last == name:
                found.add(name_of(path))
    return found


def test_the_whole_core_is_known_where_the_parts_are_built_and_nowhere_else() -> None:
    assert knowing("engine.shared.core", "Core") == {"engine/engine.py"}


def test_what_a_part_names_of_the_core_is_used_where_it_is_named() -> None:
    assert len(protocols()) > 20, "the Protocols of the core are found"
    for name, (path, node) in protocols().items():
        used = {each.attr for each in nodes(path) if isinstance(each, ast.Attribute)}
        assert fields(node) <= used, f"{path}: {name} names {fields(node) - used}, which the module does not use"


def test_what_a_part_names_of_the_core_is_named_once() -> None:
    """A Protocol inherits those of the code to which it passes the core on, and adds what they lack."""
    for name, (path, node) in protocols().items():
        assert not fields(node) & inherited(node), f"{path}: {name} names again {fields(node) & inherited(node)}"


KNOW_THE_SERVICE = {
    "http/plan/call.py": "handlers take from it what their requests need",
    "http/http1/http1_connection.py": "a connection makes calls",
    "http/http2/h2_connection.py": "likewise",
    "http/lane/lane.py": "the lane is both, as columns",
    "http/lane/group_answers.py": "likewise",
    "http/lane/lane_answers.py": "likewise",
    "http/protocol_choice.py": "makes connections",
    "http/relay/relay_server.py": "makes calls of requests of another core",
    "http/spanning/inner_orders.py": "makes calls of its own for other cores",
    "http/relay/relayed_writes.py": "takes and answers such requests",
    "http/spanning/far_feed.py": "makes calls of its own",
    "http/spanning/served_feed.py": "serves what another core follows",
    "http/spanning/spanning_feed.py": "makes calls of its own",
    "http/spanning/spanning_socket.py": "likewise",
    "server/app.py": "builds it",
    "server/cores/neighbours.py": "passes it on",
    "server/cores/relays.py": "likewise",
    "server/cores/shares.py": "makes calls of its own, and has others executed again",
    "server/handler.py": "makes the first state of a connection",
    "server/websocket.py": "a session is a connection",
}
"""The modules that know the whole service of HTTP, with the reason. Others have a Protocol of the parts they use."""


def test_the_whole_service_is_known_where_it_is_built_and_where_requests_are_handled() -> None:
    assert knowing("http.plan.service", "Service") == set(KNOW_THE_SERVICE)


def test_a_protocol_of_the_service_names_what_its_module_uses() -> None:
    found = [
        (path, node)
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Service") and node.name != "Service"
    ]
    assert len(found) >= 5
    for path, node in found:
        used = {each.attr for each in nodes(path) if isinstance(each, ast.Attribute)}
        assert fields(node) <= used, f"{path}: {node.name} names {fields(node) - used}, which the module does not use"

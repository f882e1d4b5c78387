"""An object is whole when it was built: nothing is set on it later that its `__init__` does not set.

Otherwise a reader of a class does not know what it has, and a use before the later step fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.project.structure.trees import modules, name_of, tree

FOREIGN = {
    "__cause__", "__traceback__",  # of exceptions
    "apart", "budget", "command", "delays", "few_records", "key_room", "long_bytes", "secret",  # of structs in C
    "ttls",  # likewise
    "stderr", "stdin", "stdout",  # of sys
    "decoder", "header_table_size", "local_settings", "remote_settings", "table_size_changes",  # of the h2 package
}  # fmt: skip
"""Attributes of objects whose classes are not in `topics/`."""
_VALUES = ("Protocol", "NamedTuple", "Struct", "Enum", "IntEnum", "IntFlag", "Flag", "TypedDict")
_WITHOUT = (ast.ClassDef, ast.expr)
"""Nodes whose inside has no assignment to be found."""


class Class(NamedTuple):
    """A class of `topics/`."""

    file: str
    node: ast.ClassDef

    @property
    def bases(self) -> list[str]:
        return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in self.node.bases]

    @property
    def is_value(self) -> bool:
        """Its fields are declared at the top, and a generated `__init__` sets them."""
        decorators = [ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in self.node.decorator_list]
        return "dataclass" in decorators or any(base in _VALUES for base in self.bases)

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [one for one in self.node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


class Assigned(NamedTuple):
    """An assignment to an attribute."""

    owner: str
    attribute: str
    has_value: bool


def classes(trees: dict[str, ast.Module]) -> dict[str, Class]:
    """All classes by name, which is unique (tests/project/test_words.py)."""
    return {
        node.name: Class(file, node)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def assigned(node: ast.AST) -> Iterator[Assigned]:
    """Each assignment to an attribute under a node, except under classes inside it.

    Expressions, which are most nodes, are looked at only where they are assigned to.
    """
    waiting = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _WITHOUT)]
    while waiting:
        child = waiting.pop()
        waiting += [one for one in ast.iter_child_nodes(child) if not isinstance(one, _WITHOUT)]
        targets: list[ast.expr] = []
        has_value = True
        if isinstance(child, ast.Assign):
            targets = child.targets
        elif isinstance(child, ast.AugAssign | ast.For | ast.AsyncFor):
            targets = [child.target]
        elif isinstance(child, ast.AnnAssign):
            targets, has_value = [child.target], child.value is not None
        elif isinstance(child, ast.withitem) and child.optional_vars is not None:
            targets = [child.optional_vars]
        for target in targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                    yield Assigned(ast.unparse(one.value), one.attr, has_value)


def built(name: str, known: dict[str, Class]) -> set[str]:
    """The attributes that an object of a class has once it was built."""
    one = known.get(name)
    if one is None:
        return set()
    found = {attribute for base in one.bases for attribute in built(base, known)}
    for statement in one.node.body:
        if isinstance(statement, ast.Assign):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found |= {statement.target.id} if one.is_value or statement.value is not None else set()
    for function in one.functions:
        if function.name in ("__init__", "__new__", "__post_init__"):
            found |= {
                set_.attribute for set_ in assigned(function) if set_.has_value and set_.owner in ("self", "made")
            }
        elif any(ast.unparse(decorator).endswith(".setter") for decorator in function.decorator_list):
            found.add(function.name)
    return found


def set_later(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(class or file, attribute) of what is set although no `__init__` has set it."""
    found: set[tuple[str, str]] = set()
    known = classes(trees)
    by_class = {name: built(name, known) for name in known}
    for name, one in known.items():
        if not one.is_value:
            found |= {
                (name, statement.target.id)
                for statement in one.node.body
                if isinstance(statement, ast.AnnAssign) and statement.value is None
                if isinstance(statement.target, ast.Name)
            }
        for function in one.functions:
            own = {set_.attribute for set_ in assigned(function) if set_.owner == "self"}
            found |= {(name, attribute) for attribute in own - by_class[name]}
    of_any = set[str]().union(*by_class.values())
    for file, whole in trees.items():
        for set_ in every_assignment(whole):
            if set_.owner not in ("self", "cls") and set_.attribute not in of_any | FOREIGN:
                found.add((file, set_.attribute))
    return found


def every_assignment(tree: ast.AST) -> Iterator[Assigned]:
    yield from assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from assigned(node)


def test_nothing_is_set_on_an_object_that_its_init_does_not_set() -> None:
    found = set_later({name_of(path): tree(path) for path in modules()})
    assert found == set(), "build it with these, or give them a value in __init__"


def test_what_is_declared_or_set_too_late_is_found() -> None:
    source = """
class Whole:
    always = 1
    def __init__(self): self.a, self.b = 1, 2
    def go_on(self): self.a = self.always = 3
class Later(Whole):
    declared: int
    def __init__(self): self.bare: int
    def go_on(self):
        for self.each in (): self.b += 1
@dataclass
class Value:
    field: int
    def go_on(self): self.field = 1
def patch(one): one.field = one.patched = 1
"""
    found = set_later({"file.py": ast.parse(source)})
    assert found == {("Later", "declared"), ("Later", "bare"), ("Later", "each"), ("file.py", "patched")}


LATER = {
    ("embedded/appends/offers.py", "done"): "an offer that several become, or that is answered",
    ("embedded/log_reader.py", "give_up"): "a page while a thread reads it",
    ("http/handlers/watch_endpoints.py", "on_key_gone"): "a slot, which is taken before its stream opens",
    ("http/handlers/work_endpoint.py", "on_key_gone"): "likewise",
    ("http/handlers/watch_endpoints.py", "on_shutdown"): "likewise",
    ("http/handlers/work_endpoint.py", "on_shutdown"): "likewise",
    ("http/relay/far_stream.py", "on_key_gone"): "a slot, which there may be none of",
    ("http/relay/far_stream.py", "on_disconnect"): "a call, until another core opens its stream",
    ("http/streams/stream_slots.py", "on_key_gone"): "a slot whose stream has ended",
    ("http/streams/stream_slots.py", "on_shutdown"): "likewise",
    ("server/websocket.py", "on_key_gone"): "a slot, which is taken before its session begins",
    ("http/handlers/checkpoint_endpoint.py", "on_disconnect"): "a call, while its handler waits",
    ("http/handlers/queue_endpoints.py", "on_disconnect"): "likewise",
    ("http/handlers/reader_endpoints.py", "on_disconnect"): "likewise",
    ("http/handlers/record_endpoints.py", "on_disconnect"): "likewise",
    ("http/handlers/wait_endpoint.py", "on_disconnect"): "likewise",
    ("http/relay/relay_client.py", "on_disconnect"): "a call, while it waits on another core",
    ("http/spanning/inner_orders.py", "on_disconnect"): "a call, while a copy is made for it",
    ("http/spanning/portions.py", "on_disconnect"): "a call, while it waits on the other cores",
    ("pipelines/engines.py", "on_request"): "a request to stop, while Spark runs",
}
"""Functions that are set on another object, each for a part of its life: what they are set on, and when."""


def functions_set(whole: ast.Module, methods: set[str], fields: set[str]) -> set[str]:
    """The attributes of other objects that are set to a function.

    It is a lambda, a method, or a part of a call; or the attribute is one of `fields`.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    in_classes = {each for one in ast.walk(whole) if isinstance(one, ast.ClassDef) for each in one.body}
    local = {each.name for each in ast.walk(whole) if isinstance(each, functions) and each not in in_classes}

    def is_function(value: ast.expr) -> bool:
        if isinstance(value, ast.BoolOp):
            return any(map(is_function, value.values))
        if isinstance(value, ast.Call):
            return ast.unparse(value.func) in ("partial", "functools.partial")
        if isinstance(value, ast.Attribute):
            return value.attr in methods
        return isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in local)

    found = set[str]()
    for node in ast.walk(whole):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for each, value in pairs:
                if isinstance(each, ast.Attribute) and ast.unparse(each.value) not in ("self", "cls", "made"):
                    is_none = isinstance(value, ast.Constant)
                    found |= {each.attr} if is_function(value) or (each.attr in fields and not is_none) else set()
    return found


def methods_of(trees: dict[str, ast.Module]) -> set[str]:
    """Names of methods that are no property, and that no object has as a value, too."""
    known = classes(trees)
    methods = {
        function.name for one in known.values() for function in one.functions if not function.decorator_list
    }  # fmt: skip
    values = {name for one in known for name in built(one, known)}
    return methods - values


def function_fields(trees: dict[str, ast.Module]) -> set[str]:
    """Names of attributes that are declared to be functions."""
    return {
        node.target.attr
        for whole in trees.values()
        for node in ast.walk(whole)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        if ast.unparse(node.annotation).startswith("Callable[")
    }


def test_an_object_is_built_with_the_functions_that_it_calls() -> None:
    """An owner that sets them afterwards leaves an object that does half of its work until then.

    An object that comes later is put into a list of the earlier one, or gives it to a method.
    """
    trees = {name_of(path): tree(path) for path in modules()}
    named = methods_of(trees), function_fields(trees)
    found = {(file, name) for file, whole in trees.items() for name in functions_set(whole, *named)}
    assert found - set(LATER) == set(), "give it to the constructor"
    assert set(LATER) <= found, "an exception that is none any more"


def test_functions_that_are_set_later_are_found() -> None:
    source = """
class Owner:
    def __init__(self, part):
        part.one = self.go_on
        part.sub.two, part.number = lambda: 1, 2
        part.three = _nothing
        part.four = given or partial(print, 1)
        part.again, self.own = 1, self.go_on
        self.five: Callable[[], None] = _nothing
        part.five = given
    def go_on(self): pass
def _nothing(): pass
"""
    trees = {"file.py": ast.parse(source)}
    found = functions_set(trees["file.py"], methods_of(trees), function_fields(trees))
    assert found == {"one", "two", "three", "four", "five"}


PARTS_LATER = {
    ("Backups", "take"): "a capture of the last checkpoint, when the log is closed",
    ("CoreShares", "join"): "the service, whose limits refuse with the shares in hand",
    ("FarFeed", "take_order"): "the stream of orders, each time that it opens",
    ("Http2Stream", "open_stream"): "the callbacks of an answer that is a stream",
    ("KeyLimits", "divide"): "the ledger, with the service: see CoreShares.join",
    ("Loan", "revoke"): "why it has ended",
    ("Maintenance", "gather_until"): "what is called once, at a time given with it",
    ("Service", "serve"): "the engine, after recovery, before which requests are answered",
    ("Topic", "set_expiries"): "the expiries of its records, while it has some",
    ("WriteStreak", "begin"): "the topic of this streak",
}  # fmt: skip
"""Methods that give an object a part of it: what comes later in its life, or changes."""
_CONTAINERS = ("deque", "dict", "list", "set")
_NO_PART = ("_", "on_")
"""How names of methods begin that no owner calls to finish an object."""


def assignments(node: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr | None]]:
    """Each attribute that is assigned to under a node, with its value; None: a part of another."""
    for each in ast.walk(node):
        targets: list[tuple[ast.expr, ast.expr | None]] = []
        match each:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                targets = list(zip(names, values, strict=False))
            case ast.Assign():
                targets = [(target, each.value) for target in each.targets]
            case ast.AnnAssign() if each.value is not None:
                targets = [(each.target, each.value)]
            case ast.AugAssign() | ast.For():
                targets = [(each.target, None)]
            case ast.withitem() if each.optional_vars is not None:
                targets = [(each.optional_vars, None)]
        for target, value in targets:
            if isinstance(target, ast.Attribute):
                yield target, value
            else:
                yield from ((one, None) for one in ast.walk(target) if isinstance(one, ast.Attribute))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    """The annotation of each parameter."""
    arguments = function.args
    return {one.arg: one.annotation for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def names_in(node: ast.AST | None) -> set[str]:
    return set() if node is None else {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


class Parts:
    """Says of annotations whether they name a function, or an object that is no value."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._classes = classes(trees)
        self._functions = {"Callable"} | {
            statement.targets[0].id
            for whole in trees.values()
            for statement in whole.body
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            if ast.unparse(statement.value).startswith("Callable[")
        }

    def names_one(self, annotation: ast.expr | None) -> bool:
        return self.names_object(annotation) or bool(names_in(annotation) & self._functions)

    def names_object(self, annotation: ast.expr | None) -> bool:
        is_container = isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in _CONTAINERS
        return not is_container and any(map(self._is_object, names_in(annotation)))

    def _is_object(self, name: str) -> bool:
        one = self._classes.get(name)
        return one is not None and ("Protocol" in one.bases or not one.is_value)


def finishing_methods(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(class, method), the only one that gives the object a part of it, which its `__init__` does not know."""
    found, parts = set[tuple[str, str]](), Parts(trees)
    for name, one in classes(trees).items():
        own = {function.name: function for function in one.functions}
        init = own.pop("__init__", None)
        if init is None:
            continue
        given = set(parameters(init)) - {"self"}
        nothing = {
            target.attr
            for target, value in assignments(init)
            if value is not None and (isinstance(value, ast.IfExp) or not names_in(value) & given)
        }
        by_attribute: dict[str, list[tuple[str, ast.expr | None]]] = {}
        for function in own.values():
            taken = parameters(function)
            for target, value in assignments(function):
                if ast.unparse(target.value) == "self":
                    annotation = taken.get(value.id) if isinstance(value, ast.Name) else None
                    by_attribute.setdefault(target.attr, []).append((function.name, annotation))
        for attribute, set_by in by_attribute.items():
            method, annotation = set_by[0]
            if len(set_by) == 1 and attribute in nothing and not method.startswith(_NO_PART):
                found |= {(name, method)} if parts.names_one(annotation) else set()
    return found


def finished_by_others(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(class, attribute) of other objects that a class gives a part: in `__init__`, or one that it is given.

    Parts that are functions are found by `functions_set`.
    """
    found, parts = set[tuple[str, str]](), Parts(trees)
    fields = {
        node.target.attr
        for whole in trees.values()
        for node in ast.walk(whole)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        if parts.names_object(node.annotation)
    }
    for name, one in classes(trees).items():
        for function in one.functions:
            taken = parameters(function)
            for target, value in assignments(function):
                owner = ast.unparse(target.value)
                is_given = isinstance(value, ast.Name) and value.id in taken and owner.startswith("self.")
                is_new = isinstance(value, ast.Name | ast.Attribute) and function.name == "__init__"
                if owner not in ("self", "cls") and target.attr in fields and (is_given or is_new):
                    found.add((name, target.attr))
    return found


def test_no_method_finishes_an_object_after_it_was_built() -> None:
    """Until it is called the object does half of its work, and no reader of `__init__` sees that.

    Parts that need each other are built in order, or by a factory that gets what is later, or they share a small
    object that is made first.
    """
    trees = {name_of(path): tree(path) for path in modules()}
    found = finishing_methods(trees)
    assert found - set(PARTS_LATER) == set(), "give it to the constructor"
    assert set(PARTS_LATER) <= found, "an exception that is none any more"
    of_struct = {("WriteColumns", "keys")}
    assert finished_by_others(trees) == of_struct, "give it to the constructor, unless it is a struct in C"


def test_methods_and_owners_that_finish_an_object_are_found() -> None:
    source = """
class Port(Protocol): ...
class Found(NamedTuple): number: int
Done = Callable[[int], None]
class Part:
    def __init__(self, config: Config):
        self._port = self._done = self._found = self._moving = None
        self._ask = nothing if config.some else all
        self.others: Port | None = None
        self.given = config
    def join(self, port: Port | None): self._port = port
    def ask(self, ask: Done): self._ask, self._other = ask, 1
    def finish(self, done: Callable[[], None]):
        for each in self.all: each.finish(done)
        self._done = done
    def note(self, found: Found): self._found = found
    def move(self, port: Port): self._moving = port
    def stop(self): self._moving = None
    def replace(self, port: Port): self.given = port
    def on_end(self, port: Port): self._ended = port
class Owner:
    def __init__(self, part: Part, port: Port):
        self._part = part
        part.others = port
class Manager:
    def join(self, port: Port): self._far.others = self._near.others = port
    def leave(self): self._far.others = None
"""
    trees = {"file.py": ast.parse(source)}
    assert finishing_methods(trees) == {("Part", "join"), ("Part", "ask"), ("Part", "finish")}
    assert finished_by_others(trees) == {("Owner", "others"), ("Manager", "others")}

"""Counts the blocks that run: each function, branch, loop body and handler of some rooms of the server.

The code of functions that are loaded is exchanged for the same with a counter in each block. That costs a fifth of a
run, where a trace function costs several runs, and needs no newer Python (sys.monitoring came with 3.12).
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple
from zlib import crc32

import topics

ROOMS = ("store", "engine", "loop")
_NAME = "__blocks__"
_Key = tuple[str, str, int]


class Function(NamedTuple):
    """sum: checksum of its text, without comments and places; blocks: its own, and those of
    functions in it.
    """

    sum: int
    blocks: range


class Blocks:
    """All blocks of the rooms. counts: how often each has run."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.functions: dict[str, Function] = {}
        """Functions by file and qualified name."""

    def install(self) -> int:
        """Exchange the code of every loaded function. Return their number."""
        codes: dict[_Key, CodeType] = {}
        root = Path(topics.__file__).parent
        for room in ROOMS:
            for path in sorted((root / room).rglob("*.py")):
                tree = ast.parse(path.read_text())
                _Counting(self, f"{path.relative_to(root)}").visit(tree)
                codes |= {(str(path), *key): code for key, code in _codes(compile(tree, str(path), "exec"))}
        exchanged = 0
        for function in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
            old = function.__code__
            new = codes.get((old.co_filename, old.co_qualname, old.co_firstlineno))
            if new is not None and new.co_freevars == old.co_freevars:
                function.__code__ = new
                function.__globals__[_NAME] = self.counts
                exchanged += 1
        return exchanged

    def clear(self) -> None:
        self.counts[:] = [0] * len(self.counts)

    def counter(self) -> ast.stmt:
        """Return a statement that counts one more run of a new block."""
        self.counts.append(0)
        return ast.parse(f"{_NAME}[{len(self.counts) - 1}] += 1").body[0]


class _Counting(ast.NodeTransformer):
    def __init__(self, blocks: Blocks, path: str) -> None:
        self._blocks = blocks
        self._path = path
        self._names: list[str] = []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        first = len(self._blocks.counts)
        names, text_sum = self._names, 0
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text_sum = crc32(ast.dump(node).encode()) if is_function else 0
            self._names = [*names, node.name, *(["<locals>"] if is_function else [])]
        super().generic_visit(node)
        self._names = names
        self._count_blocks(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            blocks = range(first, len(self._blocks.counts))
            self._blocks.functions[f"{self._path}:{'.'.join([*names, node.name])}"] = Function(text_sum, blocks)
        return node

    def _count_blocks(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                has_text = ast.get_docstring(node, clean=False) is not None
                self._count(node.body, node, int(has_text))
            case ast.If():
                self._count(node.body, node)
                if not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
                    self._count(node.orelse, node)
            case ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.match_case():
                self._count(node.body, node.body[0])

    def _count(self, body: list[ast.stmt], at: ast.stmt | ast.excepthandler, index: int = 0) -> None:
        counter = self._blocks.counter()
        for part in ast.walk(counter):
            ast.copy_location(part, at)
        body.insert(index, counter)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yield the code of all functions that are defined in it.

    Lambdas of one line cannot be distinguished, and have no blocks.
    """
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name[0] != "<":
                yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _codes(constant)

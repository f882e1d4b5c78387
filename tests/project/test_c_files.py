"""C as its readers expect it: each file compiles by itself, without a warning, and a build knows all its files."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import struct
import subprocess
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cffi
import pytest

import build_ffi
from tests.project.structure.trees import called, counts, modules, nodes, places
from topics.common.topic_names import NAME_MAX
from topics.store.format import log_format
from topics.store.format.c_interface import dtype_of, layout_of

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in (ROOT / "topics").rglob("*.[ch]") if not path.name.startswith("_"))
"""Without what cffi makes of them."""


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler: this installation was built elsewhere")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_compiles_alone_and_without_a_warning(compiler: str, path: Path) -> None:
    """A function that other files call has its declaration in a header that its own file includes, too."""
    strict = ("-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror")
    output = ("-fsyntax-only",) if path.suffix == ".h" else ("-c", "-o", os.devnull)
    done = subprocess.run(
        [compiler, "-x", "c", "-std=gnu11", f"-I{sysconfig.get_path('include')}", *strict, *output, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_header_holds_no_code_but_inline_functions_and_no_file_includes_another_ones_code() -> None:
    for path in FILES:
        text = path.read_text()
        assert not re.findall(r'^#include "[^"]+\.c"', text, re.M), path
        if path.suffix == ".h":
            assert text.count("#ifndef TOPICS_") == 1, f"{path}: no include guard"
            assert not re.findall(r"^static (?!inline |const )", text, re.M), path


def test_a_build_is_made_again_when_any_of_its_files_changes() -> None:
    parts = {extension.module: build_ffi.dependencies(extension) for extension in build_ffi.EXTENSIONS}
    assert sorted({path for files in parts.values() for path in files}) == sorted([*FILES, build_ffi.LAYOUT])
    rows = ROOT / "topics/store/format/rows.h"
    assert [module.rpartition(".")[2] for module, files in parts.items() if rows in files] == [
        "_codec",
        "_records",
        "_scan",
        "_index_reads",
    ]


def test_make_watches_the_same_files() -> None:
    done = subprocess.run(
        ["make", "-s", "-f", "Makefile", "--eval", "names: ; @echo $(C_FILES)", "names"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no make: {done.stderr[-200:]}")
    assert sorted(ROOT / name for name in done.stdout.split()) == FILES


@pytest.mark.parametrize("extension", build_ffi.EXTENSIONS, ids=lambda extension: extension.module)
def test_mypy_sees_the_functions_and_numbers_that_c_declares(extension: build_ffi.Extension) -> None:
    """The stub of a module in C, against the module: names, arguments, and which of them are numbers."""
    stub = ROOT / (extension.module.replace(".", "/") + ".pyi")
    module = importlib.import_module(extension.module)
    described = next(
        node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef) and node.name == "_Lib"
    )
    for node in described.body:
        if isinstance(node, ast.AnnAssign):
            assert type(getattr(module.lib, ast.unparse(node.target))) is int
            continue
        assert isinstance(node, ast.FunctionDef), ast.unparse(node)
        arguments = [ast.unparse(argument.annotation or ast.Name("")) for argument in node.args.args[1:]]
        function = module.ffi.typeof(getattr(module.lib, node.name))
        assert len(arguments) == len(function.args), node.name
        numbers = [argument == "int" for argument in arguments]
        assert numbers == [argument.kind == "primitive" for argument in function.args], node.name
        returns = ast.unparse(node.returns or ast.Name(""))
        assert (returns == "int") == (function.result.kind == "primitive"), node.name
        for annotation, kind in zip([*arguments, returns], [*function.args, function.result], strict=True):
            if kind.kind == "pointer" and kind.item.kind == "struct":
                struct = kind.item.cname.removeprefix("struct ")
                assert annotation in (struct, "bytes"), f"{node.name}: {annotation} is a pointer to a {struct}"


def constants_of_c() -> Iterator[tuple[str, int | None]]:
    """Name and value of all numbers that C files declare; None: not a plain number."""
    for path in FILES:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        for name, value in re.findall(r"^#define (\w+) (\w+)u?$", text, re.M):
            yield name, int(value.rstrip("u"), 0) if value[0].isdigit() else None
        for body in re.findall(r"^enum \{(.*?)\}", text, re.M | re.S):
            number: int | None = -1
            for entry in filter(None, map(str.strip, body.split(","))):
                name, given, expression = (part.strip() for part in entry.partition("="))
                if given:
                    plain = re.fullmatch(r"(\d\w*?)u?(?: << (\d+))?", expression)
                    number = int(plain[1], 0) << int(plain[2] or 0) if plain else None
                elif number is not None:
                    number += 1
                yield name, number


def may_be_a_number(value: ast.expr) -> bool:
    """Whether an expression is a number, or made of some: texts, tables and patterns are none."""
    if isinstance(value, ast.Constant):
        return type(value.value) is int
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"int", "len", "max", "min", "sum"}
    if any(isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) for node in ast.walk(value)):
        return False
    return isinstance(value, ast.Attribute | ast.BinOp | ast.Name | ast.UnaryOp)


def constants_of_python() -> Iterator[tuple[Path, str, str]]:
    """Where a module gives a name to a number, and how it is written."""
    for path in modules():
        for node in nodes(path):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                both = [target], [node.value]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    both = target.elts, node.value.elts
                for name, value in zip(*both, strict=False):
                    if isinstance(name, ast.Name) and name.id.isupper() and may_be_a_number(value):
                        yield path, name.id, ast.unparse(value)


def test_no_number_is_declared_in_two_places_of_c_or_in_c_and_python() -> None:
    """Python takes numbers of C from its module (`lib.E_ROOM`).

    With another value the name is refused, too: one of the two drifted, or means something else.
    """
    declared = Counter(name for name, _value in constants_of_c())
    assert len(declared) > 80, "the numbers are written in another way"
    assert {name for name, places in declared.items() if places > 1} == set()
    names = {name.removeprefix("TP_"): name for name in declared}
    again = [
        f"{path.relative_to(ROOT)}: {name} = {value}"
        for path, name, value in constants_of_python()
        if (bare := name.strip("_").removeprefix("TP_")) in names and value != f"lib.{names[bare]}"
    ]
    assert not again, f"take it from `lib`, or give one of the two another name: {again}"
    assert dict(constants_of_c())["TOPIC_NAME_BYTES_MAX"] == NAME_MAX


def test_no_module_counts_further_from_a_number_of_c() -> None:
    """The next entry of an enum of C may have the same number: it has its place in the enum."""
    found = [
        f"{path.relative_to(ROOT)}: {name} = {value}"
        for path, name, value in constants_of_python()
        if re.fullmatch(r"lib\.\w+ [-+] \d+|\d+ \+ lib\.\w+", value)
    ]
    assert not found


NATIVE = {
    "engine/bodies/write_body.py": "spans one after the other, of which strict_json.py asserts what they are",
    "engine/json/strict_json.py": "likewise",
    "http/relay/relay_message.py": "a message to another process of this server",
    "http/spanning/feed_messages.py": "likewise",
    "loop/doors/hand_over_message.py": "a message to the next server on this machine",
    "uring/blocking.py": "an option of a socket",
}
"""Modules with layouts in the machine's order that are no structs of the project's C."""
TYPES_OF_FILES = {"files/scanning.py", "store/format/c_interface.py", "store/layouts/pack_format.py"}
"""Modules that make types of rows: from log_format.py, from C, and of a file that C does not know."""


def native_layout(node: ast.AST) -> bool:
    """Whether a call of the module `struct` has a layout in the machine's order, written out."""
    if not (isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith("struct.")):
        return False
    given = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
    return isinstance(given, ast.Constant) and str(given.value)[:1] not in ("<", ">", "!")


def row_type(node: ast.AST) -> bool:
    """Whether a call makes a type of rows of several fields."""
    is_type = isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.dtype", "numpy.dtype") and bool(node.args)
    return is_type and isinstance(node.args[0], ast.Dict | ast.List | ast.ListComp)  # type: ignore[attr-defined]


def test_python_takes_the_layout_of_a_struct_from_c() -> None:
    """With `layout_of` and `dtype_of`; a layout that is written out once more would drift."""
    assert places(".", native_layout) == set(NATIVE)
    assert places(".", row_type) == TYPES_OF_FILES
    assert len(counts(".", called("layout_of", "dtype_of"))) >= 12


def test_layouts_follow_from_the_fields_of_a_struct() -> None:
    fake = cffi.FFI()
    fake.cdef("struct s { uint8_t a; uint8_t zero[3]; int32_t b; uint64_t c[2]; }; struct g { uint8_t a; uint32_t b; };"
              "struct p { uint32_t a; uint32_t b; char *c; };")  # fmt: skip
    assert layout_of(fake, "s").format == "=B3xi2Q"
    assert layout_of(fake, "s", "b").format == "=i2Q"
    assert layout_of(fake, "p", last="b").format == "=2I"
    assert dtype_of(cffi_of("struct q { uint16_t a; uint8_t zero[2]; uint32_t b; };"), "q").descr == [
        ("a", "<u2"),
        ("", "|V2"),
        ("b", "<u4"),
    ]
    for bad in ("g", "p"):
        with pytest.raises(AssertionError):
            layout_of(fake, bad)


def cffi_of(text: str) -> cffi.FFI:
    made = cffi.FFI()
    made.cdef(text)
    return made


@pytest.mark.parametrize(
    ("name", "path", "layout"),
    [
        ("frame_header", "store/format/frames.h", log_format._FRAME_HEADER),
        ("batch_header", "store/format/codec.c", log_format._BATCH_HEADER),
    ],
)
def test_a_layout_of_files_is_the_same_in_c_and_in_python(name: str, path: str, layout: struct.Struct) -> None:
    """Python without C modules reads files, too, so that both have it."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "topics" / path).read_text(), flags=re.S)
    body = re.search(rf"^struct __attribute__\(\(packed\)\) {name} \{{(.*?)^\}};", text, re.M | re.S)
    assert body is not None
    letters = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q"}
    fields = [
        (field.strip(), letters[kind])
        for kind, names in re.findall(r"(uint\d+_t) ([\w, ]+);", body[1])
        for field in names.split(",")
    ]
    assert "".join(letter for _field, letter in fields) == layout.format[1:].replace("4s", "I")
    if name == "frame_header":
        assert [field for field, _letter in fields][1:] == list(log_format.FRAME_FIELDS)[1:]


def test_calls_that_hold_the_interpreters_lock_are_declared_in_one_module() -> None:
    """cffi frees the lock in each call, so a function in C that uses objects of Python needs another way."""
    by_ctypes = {path for path in modules() for node in nodes(path) if isinstance(node, ast.Import)
                 if any(name.name == "ctypes" for name in node.names)}  # fmt: skip
    assert {str(path.relative_to(ROOT)) for path in by_ctypes} == {"topics/store/format/c_interface.py"}


def test_attributes_that_c_uses_by_name_are_those_of_python() -> None:
    """A name in a text of C is not found by a tool that renames."""
    text = (ROOT / "topics/store/format/quick_append.c").read_text()
    used = set(re.findall(r'(?:InternFromString\(|GetAttrString\(\w+, )"(\w+)"', text))
    lock = {name for name in used if hasattr(threading.Lock(), name)}
    assert lock == {"acquire", "release"}
    assert used - lock == {"_driving"}
    driver = nodes(ROOT / "topics/embedded/driving/driver.py")
    assert any(isinstance(node, ast.Attribute) and ast.unparse(node) == "self._driving" for node in driver)

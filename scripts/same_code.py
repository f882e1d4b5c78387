"""Shows that a change of prose changed no code: compares Python files without docstrings and comments.

    python scripts/same_code.py main            # the working tree against a revision
    python scripts/same_code.py main topics/common

Exit code 1 names each file whose code differs. Files that only one side has are named, too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("topics", "tests", "perf", "examples", "scripts")


def code_of(text: str) -> str:
    """Return the syntax tree of a file as text, without docstrings and texts below attributes.

    A block that only has a docstring is left with `pass`, so that it equals the same block without one.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not is_prose(line)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree)


def is_prose(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, text=True).stdout


def main(revision: str, *paths: str) -> int:
    differing = []
    for name in git("diff", "--name-only", revision, "--", *(paths or TREES)).split():
        if not name.endswith((".py", ".pyi")):
            continue
        path = ROOT / name
        before = git("ls-tree", "--name-only", revision, "--", name).strip()
        if not path.exists() or not before:
            differing.append(f"{name}: only one side has it")
        elif code_of(git("show", f"{revision}:{name}")) != code_of(path.read_text()):
            differing.append(f"{name}: the code differs")
    print("\n".join(differing) or "the code is the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Which rules of the wire contract have no test: `python scripts/rule_ids.py`; exit code 1 when there are any.

docs/contract-rules.txt lists the rules, one a line: its id, then `later` when it belongs to a feature that is not there
yet. A test claims rules by starting its docstring with their ids: `R-CAP-1, TV-1: what goes is told to readers.`
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RULES_FILE = ROOT / "docs" / "contract-rules.txt"
RULE_ID = r"(?:R-[A-Z]+-\d+|TV-\d+|\d+(?:\.\d+)?(?:/\d+)?)"
CLAIM = re.compile(rf"({RULE_ID}(?:, {RULE_ID})*):\s")


class Rules(NamedTuple):
    """Ids in the file's order; `later` are not due yet."""

    due: list[str]
    later: list[str]


def read_rules(text: str) -> Rules:
    """Raises ValueError for a line that is neither a rule nor a comment, and for a rule listed twice."""
    due: list[str] = []
    later: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not re.fullmatch(RULE_ID, words[0]) or words[1:] not in ([], ["later"]):
            raise ValueError(f"line {number}: {line!r} is no rule")
        if words[0] in due or words[0] in later:
            raise ValueError(f"line {number}: {words[0]} is listed twice")
        (later if words[1:] else due).append(words[0])
    return Rules(due, later)


def claims(source: str) -> dict[str, list[str]]:
    """Rule id to the names of the tests of a module that claim it."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            match = CLAIM.match(ast.get_docstring(node) or "")
            for rule in match[1].split(", ") if match else []:
                found.setdefault(rule, []).append(node.name)
    return found


def rules_tested() -> dict[str, list[str]]:
    """The same over all test modules."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, names in claims(path.read_text(encoding="utf-8")).items():
            found.setdefault(rule, []).extend(names)
    return found


def main() -> int:
    rules = read_rules(RULES_FILE.read_text(encoding="utf-8"))
    tested = rules_tested()
    missing = [rule for rule in rules.due if rule not in tested]
    unknown = sorted(set(tested) - set(rules.due) - set(rules.later))
    print(f"{len(rules.due)} rules due, {len(rules.due) - len(missing)} tested; {len(rules.later)} for later")
    for rule in missing:
        print(f"no test: {rule}")
    for rule in unknown:
        print(f"claimed by {tested[rule][0]}, but not listed: {rule}")
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())

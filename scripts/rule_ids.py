"""List the rules of the wire contract without a test: `python scripts/rule_ids.py`; exit code 1 if any.

docs/contract.md has the rules. Its headings begin with the numbers of sections, `7.5`; the items of a section's
numbered list are its checks, `7.5/8`; bold ids at the beginning of an item are rules, `R-CAP-1`, and test vectors,
`TV-1`. A test claims rules by starting its docstring with their ids: `R-CAP-1, TV-1: a loss is reported.` The
ids by themselves, `R-CAP-1.`, are enough where its name says the rest.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contract.md"
RULE_ID = r"(?:R-[A-Z]+-\d+|TV-\d+|\d+(?:\.\d+)?(?:/\d+)?)"
CLAIM = re.compile(rf"({RULE_ID}(?:, {RULE_ID})*)(?::\s|\.\Z)")
_HEADING = re.compile(r"#{2,3} (\d+(?:\.\d+)?)\.? ")
_CHECK = re.compile(r"(\d+)\. ")
_RULE = re.compile(r"- \*\*(.*?)\*\* ")
_CHAPTER = r"[1-9]\d?"
_SECTION = rf"{_CHAPTER}\.{_CHAPTER}"
_CITED = (
    re.compile(r"(?<![\w-])(R-[A-Z]+-\d+|TV-\d+)()"),
    re.compile(r"(?<![\w-])(R-[A-Z]+)()(?![\w-])"),
    re.compile(rf"[Cc]ontract,? (?:sections? )?({_SECTION}|{_CHAPTER})()\b"),
    re.compile(rf"(?<=\s)\(({_SECTION})(?:, (\d+))?\)"),
    re.compile(rf"\b({_SECTION}),? checks? (\d+)\b(?!(?:,? (?:to|and) \d+)? of)"),
)
_CHECK_OF = re.compile(rf"(?:[Cc]heck|[Ss]tep)s? (\d+)(?:(?: to |, | and )(\d+))? of (?:section )?({_SECTION})")


def read_rules(text: str) -> dict[str, str]:
    """Every id of the page, in its order, to the id that contains it: `7.5/8` in `7.5` in `7` in "".

    Raises ValueError for an id that comes twice or is malformed, and for a list that does not count from 1.
    """
    found: dict[str, str] = {}
    section, checks = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if heading := _HEADING.match(line):
            section, checks = heading[1], 0
            rule, inside = section, section.rpartition(".")[0]
        elif check := _CHECK.match(line):
            checks += 1
            if not section or int(check[1]) != checks:
                raise ValueError(f"line {number}: {line!r} is not check {checks} of a section")
            rule, inside = f"{section}/{checks}", section
        elif bold := _RULE.match(line):
            rule, inside = bold[1], section
        else:
            continue
        if not re.fullmatch(RULE_ID, rule):
            raise ValueError(f"line {number}: {rule!r} is no id")
        if rule in found:
            raise ValueError(f"line {number}: {rule} is there twice")
        found[rule] = inside
    return found


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
    """Return the claims of all test modules."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, names in claims(path.read_text(encoding="utf-8")).items():
            found.setdefault(rule, []).extend(names)
    return found


def untested(rules: dict[str, str], tested: dict[str, list[str]]) -> list[str]:
    """Rules and checks that no test claims; sections neither claimed nor holding anything that is."""
    covered = {""}
    for claimed in tested:
        rule = claimed
        while rule not in covered:
            covered.add(rule)
            rule = rules.get(rule, "")
    return [rule for rule in rules if rule not in covered]


def citations(text: str) -> set[str]:
    """Ids that comments and docstrings refer to: rules, families of them (`R-CAP`), sections and checks.

    A section counts where it is called one: `wire contract 7.5`, `check 8 of 7.5`, `(7.5)`, `(7.5, 2)`.
    """
    found: set[str] = set()
    for pattern in _CITED:
        for section, check in pattern.findall(text):
            found.add(f"{section}/{check}" if check else section)
    for first, last, section in _CHECK_OF.findall(text):
        found |= {f"{section}/{check}" for check in (first, last) if check}
    return found


def main() -> int:
    rules = read_rules(PAGE.read_text(encoding="utf-8"))
    tested = rules_tested()
    missing = untested(rules, tested)
    unknown = sorted(set(tested) - set(rules))
    print(f"{len(rules)} rules, checks and sections, {len(rules) - len(missing)} tested")
    for rule in missing:
        print(f"no test: {rule}")
    for rule in unknown:
        print(f"claimed by {tested[rule][0]}, but not in docs/contract.md: {rule}")
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())

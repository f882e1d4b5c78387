"""Every rule of the wire contract has a test, and what code and tests refer to is in docs/contract.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from topics.http.openapi.api_operations import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def rule_ids() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rule_ids", ROOT / "scripts" / "rule_ids.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rules(rule_ids: ModuleType) -> dict[str, str]:
    found: dict[str, str] = rule_ids.read_rules(rule_ids.PAGE.read_text())
    return found


def test_every_rule_has_a_test_and_no_test_claims_one_that_is_not_in_the_page(
    rule_ids: ModuleType, rules: dict[str, str]
) -> None:
    tested = rule_ids.rules_tested()
    assert rule_ids.untested(rules, tested) == []
    assert sorted(set(tested) - set(rules)) == []


def test_what_the_code_and_the_pages_refer_to_is_in_the_page(rule_ids: ModuleType, rules: dict[str, str]) -> None:
    families = {rule.rpartition("-")[0] for rule in rules if rule.startswith("R-")}
    folders = [ROOT / name for name in ("topics", "tests", "perf", "docs", "examples", "scripts")]
    for page in [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*"))]:
        if page.suffix in (".py", ".pyi", ".c", ".h", ".md") and page != Path(__file__):
            cited = rule_ids.citations(page.read_text(encoding="utf-8"))
            assert sorted(cited - set(rules) - families) == [], page.relative_to(ROOT)


def test_every_section_of_the_openapi_description_is_in_the_page(rules: dict[str, str]) -> None:
    assert {operation.section for operation in OPERATIONS.values()} - set(rules) == {""}


def test_a_claim_is_the_beginning_of_a_docstring(rule_ids: ModuleType) -> None:
    source = '''
def test_a():
    """R-CAP-1, 7.1/3: both."""
def test_b():
    """Like R-CAP-2: not at the start."""
def helper():
    """R-CAP-3: no test."""
def test_c():
    """TV-1, R-CAP-4."""
def test_d():
    """7.2 is not alone."""
'''
    assert rule_ids.claims(source) == {
        "R-CAP-1": ["test_a"],
        "7.1/3": ["test_a"],
        "TV-1": ["test_c"],
        "R-CAP-4": ["test_c"],
    }


def test_ids_lie_in_each_other(rule_ids: ModuleType) -> None:
    page = "## 7. Topics\n### 7.5 Write\n1. The\n   body.\n2. More.\n- **R-CAP-1** Text.\n- *else*\n## 14. Other\n"
    rules = {"7": "", "7.5": "7", "7.5/1": "7.5", "7.5/2": "7.5", "R-CAP-1": "7.5", "14": ""}
    assert rule_ids.read_rules(page) == rules
    assert rule_ids.untested(rules, {"R-CAP-1": ["test_a"]}) == ["7.5/1", "7.5/2", "14"]


@pytest.mark.parametrize(
    "text", ["- **R-CAP** a", "## 6. A\n- **R-CAP-1** a\n- **R-CAP-1** b", "## 6. A\n## 6. B", "## 6. A\n2. b", "1. a"]
)
def test_a_page_with_a_mistake_is_refused(rule_ids: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        rule_ids.read_rules(text)


def test_rules_families_sections_and_checks_are_found_in_prose(rule_ids: ModuleType) -> None:
    text = """Source: wire contract, section 7.5, R-CAP-5. Of R-DEL, too (8.2); wire contract 10.4, TV-3.
    Check 8 of 2.4, checks 3 to 11 of 9.2, 7.1 check 2, (7.4, 2). Not: EWR-IAH, f(0.5), (1.0), RFC 9112 section 7.2."""
    sections = {"7.5", "8.2", "10.4", "2.4/8", "9.2/3", "9.2/11", "7.1/2", "7.4/2"}
    assert rule_ids.citations(text) == sections | {"R-CAP-5", "R-DEL", "TV-3"}

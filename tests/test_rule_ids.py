"""Every rule of the wire contract that is due has a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def rule_ids() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rule_ids", ROOT / "scripts" / "rule_ids.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_rule_that_is_due_has_a_test(rule_ids: ModuleType) -> None:
    rules = rule_ids.read_rules(rule_ids.RULES_FILE.read_text())
    tested = rule_ids.rules_tested()
    assert [rule for rule in rules.due if rule not in tested] == []


def test_no_test_claims_a_rule_that_is_not_listed(rule_ids: ModuleType) -> None:
    rules = rule_ids.read_rules(rule_ids.RULES_FILE.read_text())
    assert sorted(set(rule_ids.rules_tested()) - set(rules.due) - set(rules.later)) == []


def test_a_claim_is_the_beginning_of_a_docstring(rule_ids: ModuleType) -> None:
    source = '''
def test_a():
    """R-CAP-1, 7.1/3: both."""
def test_b():
    """Like R-CAP-2: not at the start."""
def helper():
    """R-CAP-3: no test."""
'''
    assert rule_ids.claims(source) == {"R-CAP-1": ["test_a"], "7.1/3": ["test_a"]}


@pytest.mark.parametrize("text", ["R-CAP", "R-CAP-1 soon", "R-CAP-1\nR-CAP-1 later"])
def test_a_list_with_a_mistake_is_refused(rule_ids: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        rule_ids.read_rules(text)

"""Documents that must not fall behind the code."""

import re
from dataclasses import fields
from pathlib import Path

from topics.config import Config

ROOT = Path(__file__).resolve().parent.parent


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    documented = set(re.findall(r"`TOPICS_([A-Z0-9_]+)`", (ROOT / "docs" / "settings.md").read_text()))
    assert documented == {field.name.upper() for field in fields(Config)}


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("perf/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""Every program of docs/recipes.md runs in an empty directory, and prints what is shown below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "recipes.md").read_text(encoding="utf-8")
BLOCK = r"```python\n(.*?)```\n\n```text\n(.*?)```"
RECIPES = [
    (part.partition("\n")[0], *block)
    for part in re.split(r"^#+ ", PAGE, flags=re.M)
    for block in re.findall(BLOCK, part, re.S)
]


def test_every_program_of_the_page_has_its_output() -> None:
    assert PAGE.count("```python") == len(RECIPES) > 10
    assert PAGE.count("```") == 4 * len(RECIPES)


@pytest.mark.parametrize(("program", "output"), [pytest.param(*rest, id=title) for title, *rest in RECIPES])
def test_a_recipe_prints_what_the_page_says(
    program: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "docs/recipes.md", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output

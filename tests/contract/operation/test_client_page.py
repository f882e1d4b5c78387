"""The reader of docs/guides/client.md runs as it is printed there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "client.md"


def test_the_reader_of_the_page_writes_once_and_reads(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    world = LiveWorld(tmp_path)
    try:
        world.start()
        host, port = world.address
        code = found[1].replace("http://127.0.0.1:4000", f"http://{host}:{port}")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
            exec(code, {})
    except OSError as error:
        pytest.fail(str(error))
    finally:
        world.close()
    lines = out.getvalue().splitlines()
    assert [line.partition(", ")[0] for line in lines] == ["record {'$seq': 1"] * 2

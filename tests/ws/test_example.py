"""The client of docs/guides/websocket.md runs as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "websocket.md"


def test_the_client_of_the_page_publishes_and_reads(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    world = LiveWorld(tmp_path)
    try:
        world.start()
        host, port = world.address
        code = found[1].replace("WebSocket()", f"WebSocket({host!r}, {port})")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
    except OSError as error:
        pytest.fail(str(error))
    finally:
        world.close()
    ops = re.findall(r"^\{'op': '(\w+)'", out.getvalue(), re.MULTILINE)
    assert ops == ["ack", "subscribed", "record", "caught_up"]

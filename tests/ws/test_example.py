"""The client of docs/guides/websocket.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.world.page_code import output_of


def test_the_client_of_the_page_publishes_and_reads(tmp_path: Path) -> None:
    output = output_of("websocket.md", tmp_path, "WebSocket()", "WebSocket({host!r}, {port})")
    assert re.findall(r"^\{'op': '(\w+)'", output, re.MULTILINE) == ["ack", "subscribed", "record", "caught_up"]

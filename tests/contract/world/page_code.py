"""The Python code of a page of docs, run as it is printed there against a server of its own."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld

_GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"


def output_of(page: str, tmp_path: Path, printed: str, address: str, *, times: int = 1) -> str:
    """Start a server, run the first code of a guide so many times, and return its output.

    printed: the part of the code that names the server; address: the replacement, with `{host}` and
    `{port}`.
    """
    found = re.search(r"```python\n(.*?)```", (_GUIDES / page).read_text(), re.DOTALL)
    assert found is not None
    world, out = LiveWorld(tmp_path), io.StringIO()
    try:
        world.start()
        host, port = world.address
        code = found[1].replace(printed, address.format(host=host, port=port))
        with contextlib.redirect_stdout(out):
            for _ in range(times):
                exec(code, {})
    except OSError as error:
        pytest.fail(str(error))
    finally:
        world.close()
    return out.getvalue()

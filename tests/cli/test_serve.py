"""`topics serve` before its server is made."""

from __future__ import annotations

import subprocess
import sys

_COUNTED = """
import gc
import sys

looks = 0

def count(phase, info):
    global looks
    looks += phase == "start" and "topics.server" in sys.modules

gc.callbacks.append(count)
sys.argv = ["topics", "serve", "--config", "/none"]
from topics.cli import main
try:
    main()
finally:
    print(looks, "topics.server.app" in sys.modules, gc.isenabled())
"""


def test_the_collector_looks_for_no_garbage_while_the_server_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNTED], capture_output=True, text=True, check=False)
    looks, is_loaded, is_enabled = done.stdout.split()
    assert (is_loaded, is_enabled) == ("True", "True"), done.stderr
    assert int(looks) < 5

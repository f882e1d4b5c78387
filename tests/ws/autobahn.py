"""Autobahn's fuzzing client against the echo server. `make autobahn`; CASES="1.* 2.*" for a part.

The test suite is Python 2 code, so it needs a Python 2.7 with pip (PYTHON27, or one that pyenv has installed). It is
installed into build/autobahn on first use. Prints the count of each behaviour and every case that is not as it should
be, and ends with 1 if there is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

PACKAGE = "autobahntestsuite==0.8.2"
CASES = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"]
"""All groups but 12 and 13: compression, which is not offered."""
GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")
RUNNER = """
import site, sys
site.addsitedir({site!r})
sys.path.insert(0, {site!r})
sys.argv = ["wstest", "-m", "fuzzingclient", "-s", {spec!r}]
from autobahntestsuite.wstest import run
run()
"""


def find_python27() -> str:
    candidates = [os.environ.get("PYTHON27", "")]
    candidates += sorted(map(str, Path.home().glob(".pyenv/versions/2.7*/bin/python")))
    for path in candidates:
        if path and subprocess.run([path, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return path
    sys.exit("autobahn: its test suite needs Python 2.7 with pip, and none was found: set PYTHON27=/path/to/python2.7")


def install(python: str, site: Path) -> None:
    if (site / "autobahntestsuite").is_dir():
        return
    print(f"autobahn: installing {PACKAGE} into {site}", file=sys.stderr)
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(site), PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"autobahn: {PACKAGE} could not be installed (see above): it is needed once, from a package index")


def main() -> None:
    directory = Path("build/autobahn").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    python = find_python27()
    site = directory / "site"
    install(python, site)
    server = subprocess.Popen([sys.executable, "-m", "tests.ws.echo_server"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        spec = directory / "spec.json"
        cases = os.environ.get("CASES", "").split() or CASES
        target = {"agent": "topics", "url": f"ws://{address}"}
        excluded = {"exclude-cases": [], "exclude-agent-cases": {}}
        spec.write_text(
            json.dumps({"outdir": str(directory / "reports"), "servers": [target], "cases": cases, **excluded})
        )
        runner = RUNNER.format(site=str(site), spec=str(spec))
        with open(directory / "log", "w") as log:
            code = subprocess.run([python, "-c", runner], stdout=log, stderr=log, cwd=directory, check=False).returncode
        assert code == 0, f"the fuzzing client ended with {code}: {directory / 'log'}"
    finally:
        server.kill()
    results = json.loads((directory / "reports" / "index.json").read_text())["topics"]
    counts = Counter(result["behavior"] for result in results.values())
    bad = {
        case: result
        for case, result in results.items()
        if result["behavior"] not in GOOD or result["behaviorClose"] not in GOOD
    }
    for case, result in sorted(bad.items()):
        print(f"{case}: {result['behavior']}, close {result['behaviorClose']}")
    shown = ", ".join(f"{count} {behaviour}" for behaviour, count in sorted(counts.items()))
    print(
        f"autobahn: {len(results)} cases: {shown}; {len(bad)} not as they should be; {directory / 'reports/index.html'}"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of the decoders, one after another.

python -m tests.fuzz [--minutes 10] [--only NAME]

The Python of the decoders is instrumented; their C is not, and is fuzzed against models in tests/store and
tests/engine. What is found is written to build/fuzz and ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from pathlib import Path

OUTPUT = Path("build/fuzz")


def fuzz(name: str, seconds: int) -> None:
    """Never returns: atheris ends the process, with 0 when nothing was found."""
    import atheris  # noqa: PLC0415 - instruments what is imported after it

    with atheris.instrument_imports(include=["topics"]):
        from tests.fuzz.decoders import decoders  # noqa: PLC0415

    decoder = next(decoder for decoder in decoders() if decoder.name == name)
    corpus = OUTPUT / name.replace(" ", "-").replace("/", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(decoder.samples):
        (corpus / f"sample-{number}").write_bytes(sample)

    def one(data: bytes) -> None:
        with contextlib.suppress(*decoder.errors):
            decoder.decode(data)

    arguments = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=65536", "-verbosity=0", "-print_final_stats=1"]
    atheris.Setup([*arguments, f"-artifact_prefix={OUTPUT}/", str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all decoders together")
    parser.add_argument("--only", default="", help="decoders whose name contains this")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # in a process of its own, which has imported nothing of what is to be instrumented
        fuzz(options.one, int(options.minutes * 60))
    from tests.fuzz.test_decoders import NAMES  # noqa: PLC0415

    names = [name for name in NAMES if options.only in name]
    failed = 0
    for name in names:
        print(f"--- {name}", flush=True)
        minutes = max(1 / 60, options.minutes / len(names))
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", "--one", name, "--minutes", str(minutes)]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

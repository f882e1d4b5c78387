"""Coverage-guided fuzzing of the decoders, one after another.

python -m tests.fuzz [--minutes 10] [--only NAME] [--keep]

The Python of the decoders is instrumented; their C is not, and is fuzzed against models in tests/store and
tests/engine. It begins with the decoders' samples and with the inputs in corpus/, which --keep writes: those of what
was found so far that are small (a line of base64 each). What fails is written to build/fuzz and ends the run.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import subprocess
import sys
from pathlib import Path

OUTPUT = Path("build/fuzz")
CORPUS = Path(__file__).parent / "corpus"
_KEPT_BYTES_MAX = 900
_KEPT_MAX = 30


def file_name(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")


def kept(name: str) -> list[bytes]:
    """The inputs of a decoder that are in the tree."""
    path = CORPUS / file_name(name)
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str) -> None:
    """Writes to the tree what is small of what was found; each reached something that those before it did not."""
    found = OUTPUT / file_name(name)
    inputs = {path.read_bytes() for path in found.iterdir() if path.stat().st_size <= _KEPT_BYTES_MAX}
    lines = [base64.b64encode(data).decode() for data in sorted(inputs, key=lambda data: (len(data), data)) if data]
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / file_name(name)).write_text("".join(f"{line}\n" for line in lines[-_KEPT_MAX:]))
    print(f"{name}: {len(lines[-_KEPT_MAX:])} of {len(list(found.iterdir()))} inputs kept")


def fuzz(name: str, seconds: int) -> None:
    """Never returns: atheris ends the process, with 0 when nothing was found."""
    import atheris  # noqa: PLC0415 - instruments what is imported after it

    with atheris.instrument_imports(include=["topics"]):
        from tests.fuzz.decoders import decoders  # noqa: PLC0415

    decoder = next(decoder for decoder in decoders() if decoder.name == name)
    corpus = OUTPUT / file_name(name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate((*decoder.samples, *kept(name))):
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
    parser.add_argument("--keep", action="store_true", help="write the corpus, from what earlier runs have found")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:  # in a process of its own, which has imported nothing of what is to be instrumented
        fuzz(options.one, int(options.minutes * 60))
    from tests.fuzz.test_decoders import NAMES  # noqa: PLC0415

    names = [name for name in NAMES if options.only in name]
    failed = 0
    for name in names if options.keep else ():
        keep(name)
    for name in names if not options.keep else ():
        print(f"--- {name}", flush=True)
        minutes = max(1 / 60, options.minutes / len(names))
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", "--one", name, "--minutes", str(minutes)]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

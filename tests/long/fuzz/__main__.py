"""Coverage-guided fuzzing of the decoders, one after another.

python -m tests.long.fuzz [--minutes 10] [--only NAME] [--keep]

The Python of the decoders is instrumented; their C is not, and is fuzzed against models in tests/store and
tests/engine. It begins with the decoders' examples and with the inputs in corpus/, which --keep writes: of what was
found so far, small inputs that reach as much, or a part of these (a line of base64 each). What fails is written to
build/fuzz and ends the run. A decoder without a corpus in the tree is an error.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

OUTPUT = Path("build/fuzz")
CORPUS = Path(__file__).parent / "corpus"
_INPUT_BYTES_MAX = 2048
_KEPT_BYTES_MAX = 16 << 10
"""Bytes of a decoder's inputs in the tree."""
_INSTRUMENTED = ["topics", "h11", "h2", "hpack", "hyperframe", "wsproto"]


def file_name(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")


def kept(name: str) -> list[bytes]:
    """The inputs of a decoder that are in the tree."""
    path = CORPUS / file_name(name)
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str) -> None:
    """Writes to the tree small inputs that reach as much as all that was found, or a part of them."""
    found, chosen = OUTPUT / file_name(name), OUTPUT / f"{file_name(name)}.chosen"
    shutil.rmtree(chosen, ignore_errors=True)
    chosen.mkdir()
    again = OUTPUT / "again"  # libFuzzer starts itself for each try, by the name it was given
    again.write_text(f'#!/bin/sh\nexec {_command(name)} "$@"\n')
    again.chmod(0o755)
    options = ["-merge=1", f"-max_len={_INPUT_BYTES_MAX}", str(chosen), str(found)]
    subprocess.run([again, *options], check=True, capture_output=True)
    inputs = sorted({path.read_bytes() for path in chosen.iterdir()} - {b""}, key=lambda data: (len(data), data))
    if not inputs:
        print(f"{name}: nothing was found so far, the corpus stays as it is")
        return
    every = -(-sum(map(len, inputs)) // _KEPT_BYTES_MAX)
    lines = [base64.b64encode(data).decode() for data in inputs[::-1][::every]][::-1]
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / file_name(name)).write_text("".join(f"{line}\n" for line in lines))
    print(f"{name}: {len(lines)} of {len(inputs)} chosen of {len(list(found.iterdir()))} inputs kept")


def _command(name: str) -> str:
    """The command of a process that has imported nothing that is to be instrumented."""
    return shlex.join([sys.executable, "-W", "ignore", "-m", "tests.long.fuzz", "--one", name])


def fuzz(name: str, options: list[str]) -> None:
    """Never returns: atheris ends the process, with 0 when nothing was found. options: libFuzzer's."""
    import atheris  # noqa: PLC0415 - instruments what is imported after it

    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.long.fuzz.decoders import decoders  # noqa: PLC0415

    decoder = next(decoder for decoder in decoders() if decoder.name == name)

    def one(data: bytes) -> None:
        with contextlib.suppress(*decoder.errors):
            decoder.decode(data)

    atheris.Setup([str(OUTPUT / "again"), *options], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all decoders together")
    parser.add_argument("--only", default="", help="decoders whose name contains this")
    parser.add_argument("--keep", action="store_true", help="write the corpus, from what earlier runs have found")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options, of_libfuzzer = parser.parse_known_args()
    if options.one:
        fuzz(options.one, of_libfuzzer)
    if of_libfuzzer:
        parser.error(f"unknown: {' '.join(of_libfuzzer)}")
    from tests.long.fuzz.test_decoders import NAMES, by_name  # noqa: PLC0415

    names = [name for name in NAMES if options.only in name]
    if not names:
        parser.error(f"no decoder's name contains {options.only}: there are {', '.join(NAMES)}")
    failed = 0
    for name in names:
        corpus = OUTPUT / file_name(name)
        corpus.mkdir(parents=True, exist_ok=True)
        if options.keep:
            keep(name)
            continue
        print(f"--- {name}", flush=True)
        for number, data in enumerate((*by_name()[name].examples.values(), *kept(name))):
            (corpus / f"example-{number}").write_bytes(data)
        seconds = max(1, int(options.minutes * 60 / len(names)))
        limits = [f"-max_total_time={seconds}", "-max_len=65536", "-verbosity=0", "-print_final_stats=1"]
        command = [*shlex.split(_command(name)), *limits, f"-artifact_prefix={OUTPUT}/", str(corpus)]
        failed += subprocess.run(command, check=False).returncode != 0
        if not kept(name):
            print(f"{name} has no corpus in the tree: run this again with --keep")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

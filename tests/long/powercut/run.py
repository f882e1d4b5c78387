"""Power cuts on a real ext4: a server under load, its disk cut off at any write, each image mounted and opened.

python -m tests.long.powercut.run --cuts 500 --seed 7 [--io portable]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.long.powercut.check_image import check, check_archive
from tests.long.powercut.disk import LoggedDisk, Mounted, build, missing
from tests.long.powercut.images import images, read_log
from tests.long.powercut.life import live

CUTS_A_LIFE = 20


def one_life(program: Path, directory: Path, seed: int, cuts: int, io: str = "") -> Counter[str]:
    """Counts over `cuts` images of one life. Raises AssertionError naming seed and cut."""
    with LoggedDisk(program, directory) as disk:
        histories, begin = live(disk, seed, io=io)
    entries = read_log(disk.log)
    rng = random.Random(seed)
    positions = sorted(rng.randint(begin, len(entries)) for _ in range(cuts))
    counts = Counter({"calls": sum(len(history.events) for history in histories)})
    image_path = directory / "image"
    for cut, image in images(entries, positions, disk.megabytes << 20, seed):
        image_path.write_bytes(image)
        try:
            with Mounted(image_path, directory / "cut") as mounted:
                restored = check_archive(mounted / "archive", histories, cut, directory / "restored")
                checked = check(mounted / "data", histories, cut)
        except BaseException as error:
            error.add_note(f"seed {seed}, power cut after {cut} of {len(entries)} entries; kept in {directory}")
            raise
        counts["records compared"] += checked.records
        counts["archives restored"] += restored >= 0
        counts["records of archives"] += max(restored, 0)
        counts["compressed segments"] += checked.compressed
        counts["cuts that met some"] += checked.compressed > 0
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--io", choices=("uring", "portable"), default="", help="for all lives; by default any")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="lives side by side")
    options = parser.parse_args()
    if problem := missing():
        print(problem, file=sys.stderr)
        return 1
    print(f"seed {options.seed}", flush=True)
    began, counts = time.monotonic(), Counter[str]()
    directory = Path(tempfile.mkdtemp(prefix="topics-powercut-"))
    program = build(directory)
    parts = [
        (program, directory / str(number), options.seed + number, min(CUTS_A_LIFE, options.cuts - done), options.io)
        for number, done in enumerate(range(0, options.cuts, CUTS_A_LIFE))
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, found in enumerate(pool.imap_unordered(_life, parts)):
            counts += found
            print(f"life {number + 1}: {told(found)}", flush=True)
    assert counts["compressed segments"] or options.cuts < 100, "no cut came after a move to the cold directory"
    took = time.monotonic() - began
    lives = len(parts)
    print(f"{options.cuts} power cuts in {lives} lives, {told(counts)}, {took:.0f} s: clean")
    shutil.rmtree(directory)
    return 0


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _life(part: tuple[Path, Path, int, int, str]) -> Counter[str]:
    """One life in a directory of its own, which is kept when something is wrong."""
    part[1].mkdir()
    found = one_life(*part)
    shutil.rmtree(part[1])
    return found


if __name__ == "__main__":
    sys.exit(main())

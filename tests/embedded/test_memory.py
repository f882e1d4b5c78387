"""Memory stays bounded when the data is far larger than the hot tail; measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, sys
import topics

DATA_MIB, BUDGET_MIB = 96, 4
log = topics.open(sys.argv[1], hot_tail_bytes=BUDGET_MIB << 20, checkpoint_wal_bytes=16 << 20, wal_file_bytes=4 << 20)
texts = [b'"' + b"x" * 1022 + b'"'] * 1024

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

for _ in range(8):
    log.append_many("t", texts)
before = peak_mib()
for _ in range(DATA_MIB - 8):
    log.append_many("t", texts)
at = count = 0
while True:
    page = log.page("t", at, limit=1000)
    count += len(page.records)
    at = page.next_from_seq
    if page.caught_up:
        break
assert count == DATA_MIB * 1024, count
log.close()
print(peak_mib() - before)
"""


def test_a_hundred_mebibytes_pass_through_four_mebibytes_of_hot_tail(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 40, "growth of the peak of resident memory, MiB"

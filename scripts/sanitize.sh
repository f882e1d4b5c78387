#!/usr/bin/env bash
# Runs the tests that compare C with Python under the address and undefined-behaviour sanitizers, in a copy of the
# tree whose extensions are built with them. Python's own memory comes from malloc, so that a read beyond a bytes object
# is seen, too. Usage: scripts/sanitize.sh PYTHON [tests and options of pytest]
set -euo pipefail
python=$(realpath -s "${1:?usage: scripts/sanitize.sh PYTHON [tests]}")
shift
cd "$(dirname "$0")/.."
tests=("$@")
[ $# -gt 0 ] || tests=(
    tests/engine/json tests/store/format tests/store/read tests/engine/write tests/engine/read
    tests/http/test_scan.py tests/loop/test_connection_table.py tests/server/test_lane.py
)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp -r topics tests perf scripts build_ffi.py pyproject.toml "$tree"
cd "$tree"
find topics -name '*.so' -delete
TOPICS_C_FLAGS="-O1 -g -fno-omit-frame-pointer -fno-lto -fsanitize=address,undefined -fno-sanitize-recover=all" \
    "$python" build_ffi.py
export ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$tree PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)" \
    "$python" -m pytest -q -p no:xdist -p no:cacheprovider --hypothesis-profile=ci -m "not spark" "${tests[@]}"

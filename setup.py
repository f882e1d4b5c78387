"""Only what pyproject.toml cannot say: the cffi extensions, and one clear sentence when they cannot be built.

Elsewhere than on Linux, and with TOPICS_PURE=1, the wheel has no extensions: it is the client, for any machine.
"""

import os
import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_ffi

IS_PURE = not sys.platform.startswith("linux") or os.environ.get("TOPICS_PURE") == "1"

if not IS_PURE and (problem := build_ffi.check_toolchain()):
    sys.exit(problem)

setup(
    cffi_modules=[]
    if IS_PURE
    else [
        "build_ffi.py:ring_ffi",
        "build_ffi.py:codec_ffi",
        "build_ffi.py:records_ffi",
        "build_ffi.py:connection_table_ffi",
        "build_ffi.py:scan_ffi",
        "build_ffi.py:index_reads_ffi",
        "build_ffi.py:load_ffi",
    ]
)

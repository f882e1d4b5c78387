"""Only what pyproject.toml cannot say: the cffi extensions, and one clear sentence when they cannot be built."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_ffi

if problem := build_ffi.check_toolchain():
    sys.exit(problem)

setup(
    cffi_modules=[
        "build_ffi.py:ring_ffi",
        "build_ffi.py:codec_ffi",
        "build_ffi.py:records_ffi",
        "build_ffi.py:links_ffi",
        "build_ffi.py:scan_ffi",
        "build_ffi.py:index_reads_ffi",
        "build_ffi.py:load_ffi",
    ]
)

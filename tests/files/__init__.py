"""Tests of reading a data directory from its files; skipped as a whole where pyarrow is missing."""

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'topics-log[arrow]'")

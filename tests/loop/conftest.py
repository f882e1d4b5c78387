"""Assertions of the shared suites are explained as those of test modules are."""

import pytest

pytest.register_assert_rewrite("tests.loop.rings.ring_conformance")

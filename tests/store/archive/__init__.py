"""Tests of topics/store/archive/."""

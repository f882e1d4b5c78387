"""A fast constructor for named tuples that are made for every request."""

from __future__ import annotations

make_tuple = tuple.__new__
"""make_tuple(Kind, fields): a NamedTuple at a third of the cost.

The constructor of a NamedTuple is a Python function; this one is C.
"""

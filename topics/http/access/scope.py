"""The scopes of keys and routes."""

from __future__ import annotations

import enum


class Scope(enum.Flag):
    """The rights that a key can have. Source: wire contract, section 4.4."""

    NONE = 0
    READ = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()
    ADMIN = enum.auto()

"""Backups of an open store, each of one instant, and directories made of them."""

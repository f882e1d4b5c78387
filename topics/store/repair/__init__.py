"""Verification of a directory, and its rebuild from what is sound."""

"""Strict JSON and the bodies of writes, scanned in bulk by C (records.h)."""

"""Bytes of records fetched from any file, verified and rendered."""

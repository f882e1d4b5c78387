"""Reads of records: their bytes fetched from any file, verified and rendered."""

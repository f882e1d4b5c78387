"""Copies of backups and archives in an object store: parts that are named by their checksums."""

"""Copies of backups and archives in an object store: pieces that are named by their checksums."""

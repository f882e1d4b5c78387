"""Bytes on disk: frames, WAL and group commit, segments, snapshot, recovery."""

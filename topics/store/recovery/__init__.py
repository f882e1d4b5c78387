"""Reads of a start: the newest snapshot, the indexes of segments, then the log."""

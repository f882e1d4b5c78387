"""Frames in memory: the hot tail of the log, ephemeral records, prebuilt frames."""

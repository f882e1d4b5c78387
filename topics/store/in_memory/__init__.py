"""Frames in memory: the hot tail of the log, ephemeral records, batches built ahead of their seqs."""

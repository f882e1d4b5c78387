"""Frames in memory: the hot tail of the log, ephemeral records, batches built before their seqs are
known.
"""

"""Checkpoints, which empty the log: live records are copied into segments and packs, then a
snapshot is taken.
"""

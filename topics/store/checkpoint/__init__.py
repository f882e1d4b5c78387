"""Checkpoints, which empty the log: live records are copied, then a snapshot is taken."""

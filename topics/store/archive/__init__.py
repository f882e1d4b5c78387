"""The archive: the log of a data directory in another place, for a restore to any time."""

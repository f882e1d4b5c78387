"""The write-ahead log: shards, group commit, log files, and how long the log may get."""

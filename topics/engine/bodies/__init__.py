"""The bodies of writes as rows: one, all of a pass, those of megabytes, Python values."""

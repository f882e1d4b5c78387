"""No request holds the loop for long, whatever its fields contain. See `python -m tests.long.limits --help`."""

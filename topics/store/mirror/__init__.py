"""A copy of another server's archive, which follows it."""

"""The log that a command works on: a server's address, or a directory."""

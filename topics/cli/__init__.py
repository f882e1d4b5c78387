"""The command line: serve, doctor, fsck."""

"""The processes of a server: one that serves, or one for each core and their supervisor."""

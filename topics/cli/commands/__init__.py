"""The commands that work on topics, one file a subject."""

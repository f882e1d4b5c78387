"""Reads: one pass over a topic, long polls, lists, columns, and their budget."""

"""Answers that stay open: server-sent events, watch sessions, streams of jobs."""

"""Streamed answers: server-sent events, watch sessions, streams of jobs."""

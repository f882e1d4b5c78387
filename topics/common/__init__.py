"""Helpers for every room: metrics, page-aligned memory, names of topics, fast tuples, states."""

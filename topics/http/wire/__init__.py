"""Bytes of HTTP and the values they become: heads, parsers, queries, responses, errors."""

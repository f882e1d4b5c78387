"""Clients of a server: without a socket, and against a server on loopback."""

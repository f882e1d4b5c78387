"""The server as a service: reports to its manager, keys, memory."""

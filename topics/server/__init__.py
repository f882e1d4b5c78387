"""The composition root: sockets, protocols and engine put together."""

"""The composition root: it puts sockets, protocols and engine together."""

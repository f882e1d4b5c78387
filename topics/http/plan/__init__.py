"""Plans of requests, worked out once for each head, and the call that a handler answers."""

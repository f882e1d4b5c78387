"""A server and its mirror, killed again and again, and promoted."""

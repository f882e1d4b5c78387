"""HTTP/1: one connection without its socket."""

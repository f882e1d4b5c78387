"""HTTP/2: one connection without its socket."""

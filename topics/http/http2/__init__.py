"""One HTTP/2 connection without its socket."""

"""One HTTP/1 connection without its socket."""

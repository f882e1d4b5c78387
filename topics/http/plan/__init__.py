"""What a request asks for, worked out once, and the call that a handler answers."""

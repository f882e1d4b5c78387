"""One plain function an endpoint: `handler(call)` answers through the call, at once or from a callback."""

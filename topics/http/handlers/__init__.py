"""The endpoints, one plain function each: `handler(call)` answers the call, at once or later."""

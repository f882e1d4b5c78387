"""Access control: routes and scopes, keys, principals, origins, rate limits."""

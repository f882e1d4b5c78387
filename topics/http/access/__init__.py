"""Who may do what: routes and scopes, keys, principals, origins, rate limits."""

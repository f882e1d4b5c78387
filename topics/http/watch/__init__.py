"""Watch: many topics over one stream of server-sent events, with sessions to come back to. Contract, section 10."""

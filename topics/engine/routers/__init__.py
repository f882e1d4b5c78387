"""Routers: what is written to one topic is forwarded to another. Source: wire contract 9, R-RTR, R-EO, R-TRIM."""

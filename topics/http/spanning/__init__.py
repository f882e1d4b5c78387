"""Requests that span cores: each answers a portion, and the core that has the client joins them."""

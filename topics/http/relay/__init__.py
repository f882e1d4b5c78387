"""Requests that another core answers: the connection stays, and request and answer are relayed."""

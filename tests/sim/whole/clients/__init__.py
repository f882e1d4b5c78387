"""Clients of the simulated server, and what each takes for right."""

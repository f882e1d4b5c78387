"""Checks from outside of what has to hold while the simulated server runs."""

"""The load client: groups of connections driven by C, and what they measured."""

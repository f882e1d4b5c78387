"""Queues: a topic's records leased out as jobs. Source: wire contract, sections 6.13 and 8."""

"""Routers: records of one topic are forwarded to another.

Source: wire contract 9, R-RTR, R-EO, R-TRIM.
"""

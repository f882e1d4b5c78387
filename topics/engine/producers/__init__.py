"""Producers: writers that may send a part of their records again, much later.

Source: wire contract 6.15, R-PROD.
"""

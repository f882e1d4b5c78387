"""Servers as the contract's tests see them, and their clients."""

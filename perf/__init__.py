"""Measurements. Each `perf/<question>.py` answers one question; `--smoke` is a tiny run that keeps it from rotting."""

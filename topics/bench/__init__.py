"""`topics bench`: latency and throughput of a server, of the library and of their peers.

A workload is a small file of TOML (`workloads/`). A run measures it by turns on each side, with
one load client in C (`load/`), reads back what was acknowledged, and writes JSON and a page of
HTML. Source: docs/guides/bench.md.
"""

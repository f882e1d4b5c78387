"""Pipelines over topics: export, scrub, rollup, compact, check, replay and bundle.

Each is a module with frozen options and `run(options) -> Report`; `topics pipeline NAME` is the
same as a command. Nothing here prints, and pyspark is imported only where a Spark engine runs.
"""

"""The order in which changed topics are delivered, and the load of the engine.

Source: docs/guides/scheduling.md.

The unit is a topic: `core.awake` has it at most once, after any number of writes. While all changed
topics are delivered within the pass, scheduling costs a comparison. Otherwise the rest waits in a
`ReadySet` by priority, and the `Governor` turns the backlog into a pressure in [0, 1] and decides
what is shed: cost, never data.
"""

"""Which changed topic is delivered next, and how hard the engine is pressed. Source: docs/guides/scheduling.md.

A topic is the unit: `core.awake` has it at most once, however much is written. While everything that changed is
delivered within the pass, all this costs a comparison. When it is not, what is left waits in a `ReadySet` by priority,
and the `Governor` turns the backlog into a pressure in [0, 1] and says what is shed: cost, never data.
"""

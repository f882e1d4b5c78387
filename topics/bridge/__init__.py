"""Records carried between a server and Kafka or JetStream, exactly once (docs/outgrowing.md).

Positions are stored where the records arrive, in the same step as the records. Each start, and each
error, reads them there; nothing else is remembered.
"""

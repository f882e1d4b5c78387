"""The semantics of a topic: index, floors, tags, deletes, retention, idempotency."""

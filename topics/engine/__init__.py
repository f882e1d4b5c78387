"""What a topic means: index, floors, tags, deletes, retention, idempotency."""

"""The driver of a log's loop: the thread of a caller while it waits, or the maintenance thread."""

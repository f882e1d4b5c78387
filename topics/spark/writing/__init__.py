"""The sink: rows as JSON, in parts that are appended exactly once."""

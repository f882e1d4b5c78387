"""The index of a topic: the places of its records in chunks of columns, their tags, file usage."""

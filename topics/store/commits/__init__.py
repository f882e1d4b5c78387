"""The next batch of a shard, and how it is committed, as values: nothing here does I/O."""

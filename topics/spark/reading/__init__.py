"""The source: offsets, planning, and partitions as Arrow batches."""

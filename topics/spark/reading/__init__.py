"""The source: offsets, planning, and reading of partitions as Arrow batches."""

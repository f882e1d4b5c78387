"""The directory an export writes to: Parquet files by topic and day, and the log of commits that says which count."""

"""The target of an export: a directory of Parquet files and the log of commits that lists them."""

"""Values of records: schemas of `data`, JSON pointers, rules, checksums of rows. Pure functions."""

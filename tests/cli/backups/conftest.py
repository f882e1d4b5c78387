"""The backups and archives of the tests of buckets, for those of the commands."""

from tests.embedded.bucket.conftest import archives, backups, bucket

__all__ = ["archives", "backups", "bucket"]

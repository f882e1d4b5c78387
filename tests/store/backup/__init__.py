"""Tests of topics/store/backup/."""

"""Mirrors: an archive that is followed."""

"""Segments and packs, the manifest that lists them, and the snapshots that it is a part of."""

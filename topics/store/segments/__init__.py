"""Segments and packs, the manifest that lists them, and the snapshots it is a part of."""

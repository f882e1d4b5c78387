"""What empties the log: live records go into segments and packs, then a snapshot is taken."""

"""What a start reads: the newest snapshot, the indexes of segments, then the log."""

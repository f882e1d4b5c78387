"""The lane: plain requests of a whole pass, handled as columns (scan.c)."""

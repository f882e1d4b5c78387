"""Files, directories and free space of the volume, through the ring."""

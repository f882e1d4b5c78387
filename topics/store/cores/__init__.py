"""Which core owns a topic, and the layout of a data directory that several cores share."""

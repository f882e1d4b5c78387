"""Named readers: whose positions belong to the topic, in its log, its snapshot and its segments."""

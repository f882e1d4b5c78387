"""The client of a server: the methods of a log over HTTP (`topics.connect`)."""

"""This server as a side: its process, its topics, the loads as requests, and the checks."""

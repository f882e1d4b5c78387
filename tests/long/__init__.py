"""Searches that last for as long as one likes; a short run of each is among the tests."""

"""Searches that go on for as long as one likes; a short run of each is among the tests."""

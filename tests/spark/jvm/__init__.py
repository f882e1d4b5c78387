"""Tests with a JVM."""

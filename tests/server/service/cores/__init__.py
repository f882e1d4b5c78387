"""Servers that are the cores of one."""

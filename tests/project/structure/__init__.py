"""The code as syntax trees: which module imports, knows and does what."""

"""Results: their file, comparisons of them, and tables on a terminal."""

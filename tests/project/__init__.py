"""The repository itself: rooms and words, pages, packaging, examples and benchmarks."""

"""A stranger who follows docs/tutorial.md word by word, from a clean clone: `make tutorial`."""

"""Pages of docs/ against the code that they describe."""

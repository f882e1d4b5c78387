"""What any room may use: metrics, memory of arrays, names of topics."""

"""HTTP without I/O: bytes to requests, requests to responses; routes as plain functions."""

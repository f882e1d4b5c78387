"""Sans-IO HTTP: bytes to requests, requests to responses; routes as plain functions."""

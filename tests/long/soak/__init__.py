"""Long runs against real servers: `make soak`. A short one of each runs with the tests."""

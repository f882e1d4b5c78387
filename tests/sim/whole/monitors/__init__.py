"""What has to hold while the simulated server runs, looked at from outside."""

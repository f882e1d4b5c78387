"""What all parts of the engine share: registries, dormant topics, lease ids, the core."""

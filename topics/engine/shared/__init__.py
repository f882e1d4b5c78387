"""The shared parts of the engine: registries, dormant topics, lease ids, the core."""

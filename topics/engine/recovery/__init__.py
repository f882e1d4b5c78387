"""The engine's side of recovery and of checkpoints."""

"""The engine's part in recovery and in checkpoints."""

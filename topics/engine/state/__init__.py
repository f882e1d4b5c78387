"""What one topic, queue or router knows, and the control frames that change it."""

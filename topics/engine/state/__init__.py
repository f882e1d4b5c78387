"""The state of one topic, queue or router, and the control frames that change it."""

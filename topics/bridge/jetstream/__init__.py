"""JetStream of NATS as a side of a bridge, by nats-py."""

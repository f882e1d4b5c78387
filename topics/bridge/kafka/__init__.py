"""Kafka as a side of a bridge, by confluent-kafka."""

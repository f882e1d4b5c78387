"""The simulated ring and what lies below it: time, disk, network, faults."""

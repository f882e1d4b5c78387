"""The simulated ring and what is below it: time, disk, network, faults."""

"""A server of several cores as the machine of a seed: engines, sockets between them, and moves of slots.

The clients, monitors and audits are those of one core: they know no cores. What R-CORE-* (13.6 of
the contract) allow is excused here or where it is met, with the rule's id.

course.py         what a seed chooses: the number of cores of each life, how they take turns
sim_core.py       one core: its process, its directory and what watches it
lone_kills.py     kills of one core while the others serve
refused_moves.py  moves that the supervisor refuses, and their reasons
core_machine.py   the machine: the supervisor's steps, lives of all cores, passes by turns
"""

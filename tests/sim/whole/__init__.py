"""The whole server from one seed: HTTP bytes in and out, crashes, faults, and an oracle of what was answered.

python -m tests.sim.whole --seed 42          # one run, with its trace
python -m tests.sim.whole --count 10000      # many, on all cores; prints the seeds that fail

plan.py       what a seed chooses: settings, faults, crashes
machine.py    lives of one server on one simulated machine
monitor.py    the order of syncs, acks, renames and unlinks, watched all the time
wire.py       a client: HTTP/1.1 on a simulated connection
state.py      what one topic must hold and show
operation.py  what a client asks of its topic, and which answers are right
owned.py      topics of one client each, known exactly
clients.py    what the clients below have in common
shared.py     topics of many writers, and followers that wait for them
workers.py    queues and those who work on them
forwarding.py a router that forwards exactly once
passing.py    records that expire, and an ephemeral topic
library.py    the library instead of the server
run.py        one seed from the first start to the last audit
"""

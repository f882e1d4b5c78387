"""One oracle of the whole contract that keeps state, and one machine that asks anything in any order.

python -m tests.long.model --examples 2000                 # simulated machines: kills, power cuts, restarts
python -m tests.long.model --examples 200 --live           # a real server on loopback: SIGTERM and SIGKILL

model_topic.py    one topic: seqs, floors, caps, expiry, deletes, gaps, keys
model_jobs.py     what a queue adds to its topic: leases, delays, deliveries
model_routers.py  positions, copies, holes, what was consumed before it was forwarded
oracle.py   all of them: what each request must answer, and when time by itself changes something
server_host.py     where a server runs: simulated or a process
rule_machine.py  the rules
compare_views.py  after every rule: all that can be seen of every topic and router
"""

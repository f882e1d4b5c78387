"""The whole server from one seed: HTTP bytes in and out, crashes, faults, and an oracle of what was answered.

python -m tests.sim.whole --seed 42          # one run, with its trace
python -m tests.sim.whole --count 10000      # many, on all cores; prints the seeds that fail

What a seed chooses
  seed_plan.py aim.py                     settings, faults, crashes; those that are aimed
  run_seed.py machine.py http_client.py          a seed from start to last audit; lives of one server; a client's
  connection library_host.py                         the library instead of the server
Clients and what they know
  clients.py                         what all kinds have in common
  owned.py owned_topic.py owned_audit.py state.py operation.py keys.py   topics of one client each, known exactly
  payloads.py                        which records are bytes, for all of them
  shared.py                          topics of many writers, and followers that wait for them
  workers.py queue_state.py queue_audit.py   queues and those who work on them
  forwarding_clients.py                      routers, in a row, and what is written beside their copies
  passing.py expiring.py             topics and records that expire, and an ephemeral topic
  waiting.py                         those who wait for news of the topics of others
  watching.py                        a watcher by prefix, and the writer of its topics
  checkpoints.py shown.py            those who ask for checkpoints, and what files show then
What is watched all the time, and compared with the disk
  monitor.py listed.py consumed.py controls.py   the order of syncs, acks, renames and unlinks
  numbers.py claims.py changes.py    seqs and ids; what the log takes for synced; topics and routers, made and gone
  content.py                         the bytes that two recoveries leave
"""

"""Clients see the same before and after a kill: the server is compared with itself, without a
model.

A run is one seed: topics and routers of all kinds, requests of which some are still in flight at
the end, disks that are slow, full or failing, and a few lives. Between two of them each topic and
router is read from several cursors:

    before the end of a life, if it is a quiet one   ==   after it, also if starts were stopped in between
    after that                                       ==   after another kill
    after writes to every topic                      ==   after a third kill

and no seq acknowledged for one record is ever shown with another. A power cut may take the newest
records without a sync, so then less is compared (`Seen.after_a_power_cut`), or nothing.

    asks.py        the requests
    promised.py    the seqs that were acknowledged for good
    seen_state.py  what clients see, and whether it is the same
    run_lives.py   one seed

`python -m tests.sim.again --seed N` (or `make again SEED=N`) is one run, line by line.
"""

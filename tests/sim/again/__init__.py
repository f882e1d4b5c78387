"""What clients see before a kill is what they see after it: no model of what is right, the server against itself.

A run is one seed: topics and routers of all kinds, requests of which some are left on their way, disks that are slow,
full or failing, and a few lives. Between two of them each topic and router is looked at from several places:

    before the end of a life, if it is a quiet one   ==   after it, also if starts were stopped in between
    after that                                       ==   after another kill
    after writes to every topic                      ==   after a third kill

and no seq acknowledged for one record is ever shown with another. A power cut may take the newest of what no sync has
covered, so then less is compared (`Seen.after_a_power_cut`), or nothing.

    asks.py       what is asked
    promised.py   which seqs were acknowledged for good
    seen_state.py       what clients see, and whether it is the same
    run_lives.py        one seed

`python -m tests.sim.again --seed N` (or `make again SEED=N`) is one run, line by line.
"""

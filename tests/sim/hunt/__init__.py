"""Coverage-guided simulation: lives that have shown a new feature are stored and changed, as AFL
does with inputs.

Lives end and fail at the operations on disk that earlier ones have shown, the rare as often as the
frequent.

    python -m tests.sim.hunt --minutes 30 --corpus DIR       # `make hunt MINUTES=30`
    python -m tests.sim.hunt.compare_hunts                   # runs to find each mutant: uniform seeds, and the hunt

    blocks.py          counts the blocks of the store and the engine that run
    steps.py           the signature of a run: its blocks, and the steps at each fault and each end of a life
    life_changes.py    a genome (tests/sim/genome.py) changed in a place or two; ends and failures that are aimed
    corpus.py          the lives that are stored, and the choice of the next one to change
    hunting.py         the runs, one after another; a failure made small
    compare_hunts.py   whether the hunt finds broken code in fewer runs than seeds in their order
"""

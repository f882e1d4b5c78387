"""The fake world: time, disk and network in memory, decided by one seed.

`SimRing` gives access to it.

    ring = SimRing(seed, shuffle=True, split=True)      # shuffle: completion order, split: streams in pieces
    loop = Loop(ring, ring.clock)
    client = ring.network.client(port)                  # send, receive, finish_sending, close, reset
    ring.faults.fail("sync", errno.EIO, nth=3)          # also shorten, `lie`; `sweep` fails each operation in turn
    ring.stop_at(17)                                    # SimStoppedError after the 17th operation took effect
    ring.pauses = True                                  # SimPausedError when only a client has work: no pass
    ring = ring.next_life(power_cut=True)               # what the seed left on the disk; False: kill -9
"""

from tests.sim.world.events import Events, SimStalledError
from tests.sim.world.faults import Faults, sweep
from tests.sim.world.network import SimClient, SimNetwork
from tests.sim.world.ring_core import SimPausedError, SimStoppedError
from tests.sim.world.sim_disk import SimDisk
from tests.sim.world.sim_ring import SimRing

__all__ = [
    "Events",
    "Faults",
    "SimClient",
    "SimDisk",
    "SimNetwork",
    "SimPausedError",
    "SimRing",
    "SimStalledError",
    "SimStoppedError",
    "sweep",
]

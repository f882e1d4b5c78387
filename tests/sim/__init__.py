"""The fake world: time, disk and network in memory, decided by one seed. `SimRing` is the door to it."""

from tests.sim.core import SimStoppedError
from tests.sim.disk import SimDisk
from tests.sim.events import Events, SimStalledError
from tests.sim.faults import Faults, sweep
from tests.sim.network import SimClient, SimNetwork
from tests.sim.ring import SimRing

__all__ = [
    "Events",
    "Faults",
    "SimClient",
    "SimDisk",
    "SimNetwork",
    "SimRing",
    "SimStalledError",
    "SimStoppedError",
    "sweep",
]

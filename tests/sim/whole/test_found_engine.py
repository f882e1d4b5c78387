"""What a reading of the engine found, each as the scenario it is: classes that change, caps, keys, and queues."""

from __future__ import annotations

import pytest

from tests.contract.sim_world import SimWorld

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_cap_of_an_ephemeral_time_evicts_nothing_in_a_replay_that_it_did_not_evict() -> None:
    """R-DUR-2. That two records were deleted is told behind the frame in question, with the next class."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": at, "tag": "gone" if at > 3 else "kept"} for at in range(1, 6)])
    world.put("a", durability="ephemeral")
    world.delete("a", match="gone")
    world.put("a", durability="ephemeral", cap_records=3)
    world.put("a", durability="fsync", cap_records=3)
    for _ in range(2):
        assert (world.data("a"), world.diff("a")["tombstone"]) == ([1, 2, 3], None)
        world.crash_and_start()

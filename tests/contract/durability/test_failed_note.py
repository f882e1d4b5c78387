"""R-DUR-6: that a log failed is noted: no acknowledged seq is given out again, even where the note fails at first."""

from __future__ import annotations

import errno

from tests.contract.world.sim_world import SimWorld

FOREVER = 1 << 30


def test_the_note_that_the_log_failed_is_tried_again_until_the_disk_takes_it() -> None:
    world = SimWorld(sync_every_ms=60_000)
    world.start()
    world.put("loose", durability="disk")
    world.put("kept", durability="fsync")
    for number in range(20):
        world.write("loose", number)
    world.fail_storage("sync", errno.EIO, times=FOREVER)
    assert world.request("POST", "/v0/topics/kept", {"records": [{"data": 1}]}).status == 500
    world.advance_ms(1500)
    world.heal_storage()
    world.advance_ms(1500)
    world.crash()
    world.start()
    assert world.state("loose")["head_seq"] >= 20
    assert world.write_records("loose", [{"data": "after"}])["first_seq"] > 20


def test_a_server_whose_note_fails_for_good_ends_when_it_is_asked_to() -> None:
    world = SimWorld()
    world.start()
    world.put("kept", durability="fsync")
    world.fail_storage("sync", errno.EIO, times=FOREVER)
    assert world.request("POST", "/v0/topics/kept", {"records": [{"data": 1}]}).status == 500
    world.advance_ms(2500)
    world.begin_stop()
    assert world.finish_stop() in {0, 1}

"""`topics mirror` and `topics promote` as processes: a server and its mirror, each killed, or not as it was."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import topics.client.archive_client
from tests.cli.backups.mirror_processes import MirroredServer, Running
from tests.cli.backups.small_disk import small_disk
from tests.cli.commands.command_runs import run
from topics.cli.backups.mirror_lock import check_mounted
from topics.cli.backups.mirror_status import MirrorStatus
from topics.errors import StorageError


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MirroredServer]:
    pair = MirroredServer(tmp_path)
    yield pair
    pair.server.end()


def refused(pair: MirroredServer, mirror: Running | None = None, code: int = 1) -> str:
    """Return the text of a mirror that ends with an exit code."""
    mirror = mirror or pair.follow(until="topics: ")
    assert mirror.ended() == code, mirror.text
    return mirror.text


def test_a_mirror_that_was_killed_continues_and_is_promoted_after_its_server_was_killed(pair: MirroredServer) -> None:
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.append("orders", [{"n": 1}, {"n": 2}])
        pair.caught_up()
        mirror.end()
        log.append("orders", [{"n": 3}])
        mirror = pair.follow()
        running = pair.promote("new")
        assert (running.code, "a mirror is running" in running.err) == (1, True), running
        copied = pair.status()["copied_bytes"]
        assert pair.caught_up()["error"] == ""
    assert copied > 10_000, "what the process before has copied counts, too"
    pair.server.end()
    late = run(["mirror", "--status", "--to", str(pair.to), "--max-lag-ms", "1"], pair.home)
    assert (late.code, "ms late" in late.out) == (1, True), late
    shown = run(["mirror", "--status", "--to", str(pair.to), "--metrics"], pair.home)
    assert shown.code == 0, shown
    assert "# TYPE topics_mirror_lag_ms gauge\ntopics_mirror_lag_ms " in shown.out
    assert "\ntopics_mirror_holes 0.0\n" in shown.out
    mirror.read_to("no answer from")
    mirror.end(signal.SIGTERM)
    made = pair.promote("new", "--skip", "100")
    assert (made.code, "3 records" in made.out) == (0, True), made
    with topics.open(pair.home / "new") as log:
        assert [record.data for record in log.page("orders").records] == [{"n": 1}, {"n": 2}, {"n": 3}]
        first = log.append("orders", [{"n": 4}]).first_seq
        assert first > 103
        lost = log.page("orders", 3).tombstone
        assert lost is not None
        assert (lost.gap_from, lost.gap_to, lost.reason) == (4, first - 1, "crash")


def test_a_mirror_has_topics_deletes_configurations_floors_readers_and_routers(pair: MirroredServer) -> None:
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.put_topic("capped", cap_records=2, durability="fsync")
        log.append("capped", [1, 2, 3, 4, 5])
        log.append("orders", [{"n": n} for n in range(1, 7)], create=True)
        log.delete("orders", before_seq=3)
        log.patch_topic("orders", ttl_ms=90_000_000)
        log.put_router("copies", "orders", "copies")
        log.append("gone", [1])
        with log.reader("orders", "billing", from_="first") as reader:
            assert [record.seq for record in reader.read(limit=2)] == [3, 4]
            reader.commit()
        pair.caught_up()
        log.delete_topic("gone")
        pair.caught_up()
        (billing,) = log.readers("orders")
        configs = {name: log.state(name).config for name in ("capped", "orders")}
        router = log.router("copies")
    mirror.end()
    assert pair.promote("new").code == 0
    with topics.open(pair.home / "new") as log:
        assert {state.name for state in log.topics()} == {"capped", "copies", "orders"}
        assert {name: log.state(name).config for name in configs} == configs
        capped = log.page("capped")
        assert capped.tombstone is not None
        assert (capped.tombstone.gap_to, capped.tombstone.reason) == (3, "cap")
        assert [record.data for record in capped.records] == [4, 5]
        assert [record.seq for record in log.page("orders").records] == [3, 4, 5, 6]
        assert [(each.name, each.committed) for each in log.readers("orders")] == [("billing", billing.committed)]
        assert log.router("copies").config == router.config


def test_the_first_server_shows_how_late_its_mirror_is(pair: MirroredServer) -> None:
    """R-ARC-4: as late as what is on the mirror's disk."""
    mirror = pair.follow("--name", "the cellar")
    with topics.connect(pair.url) as log:
        log.append("orders", [1])
    pair.caught_up()
    pair.caught_up()  # of which the server knows by the step after the first
    mirror.end()
    asked_ms = time.time_ns() // 1_000_000
    with urllib.request.urlopen(f"{pair.url}/v0/metrics") as answer:
        found = re.search(r'^topics_archive_mirror_lag_ms{mirror="the cellar"} (\S+)$', answer.read().decode(), re.M)
    assert found is not None
    assert asked_ms - pair.status()["upto_ms"] <= float(found[1]) < 120_000
    bad = run(["mirror", pair.url, "--to", str(pair.home / "other"), "--name", "n" * 201], pair.home)
    assert (bad.code, "--name has 201 characters: give one of at most 200" in bad.err) == (2, True), bad


@pytest.mark.parametrize(
    ("server_ms", "answered_ms", "now_ms", "lag_ms"),
    [
        (10_000, 70_000, 75_000, 6000),  # the clocks do not agree
        (10_000, 70_000, 69_000, 1000),  # this clock was set back
        (5000, 70_000, 75_000, 5000),  # that of the server was, so what is here is of a later time
        (0, 0, 75_000, 66_000),  # the server has not answered yet
    ],
)
def test_the_lag_of_a_mirror_grows_from_the_answer_of_which_it_has_all(
    server_ms: int, answered_ms: int, now_ms: int, lag_ms: int
) -> None:
    status = MirrorStatus("", "", 9000, server_ms, answered_ms, "", "", 0, 0, 0)
    assert status.lag_ms(now_ms) == lag_ms


def test_a_mirror_is_promoted_once_and_does_not_follow_on(pair: MirroredServer) -> None:
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.append("orders", [1])
    pair.caught_up()
    mirror.end()
    (pair.home / "there").mkdir()
    exists = pair.promote("there")
    assert (exists.code, "there', which exists: promote to a path" in exists.err) == (2, True), exists
    assert pair.promote("new").code == 0
    shutil.move(pair.home / "new", pair.home / "moved")
    again = pair.promote("again")
    assert (again.code, again.out) == (2, "")
    assert f"was promoted to {pair.home}/new at 20" in again.err
    assert f"use `topics restore --from {pair.to}`" in again.err
    status = run(["mirror", "--status", "--to", str(pair.to)], pair.home)
    assert (status.code, status.out, "was promoted to" in status.err) == (2, "", True)
    assert "was promoted to" in refused(pair, code=2)
    second = run(["restore", "--from", str(pair.to), "--to", str(pair.home / "again")], pair.home)
    assert second.code == 0, second


def test_another_log_of_the_server_is_named_and_followed_on_demand(pair: MirroredServer) -> None:
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.append("orders", [1])
    pair.caught_up()
    pair.server.end()
    pair.serve("lost")  # its directory is gone, and it begins with an empty one
    text = refused(pair, mirror)
    assert f"the server has another log now, {timeline(pair)}, and {pair.to} follows" in text
    assert pair.status()["error"] in text
    mirror = pair.follow("--timeline", timeline(pair))
    with topics.connect(pair.url) as log:
        log.append("other", [2, 3])
    pair.caught_up()
    mirror.end()
    made = pair.promote("new")
    assert (made.code, "1 topic, 2 records" in made.out) == (0, True), made


def timeline(pair: MirroredServer) -> str:
    """The name of the server's timeline, from the request that a mirror makes."""
    return topics.client.archive_client.ArchiveClient(pair.url, None).state().timeline


def test_a_server_that_restarts_is_followed_on(pair: MirroredServer) -> None:
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.append("orders", [1])
        pair.caught_up()
        pair.server.end()
        mirror.read_to("no answer from")
        pair.serve()
        mirror.read_to("follows http")
        log.append("orders", [2])
        assert pair.caught_up()["holes"] == 0
    pair.server.end(signal.SIGTERM)
    pair.serve(TOPICS_ARCHIVE_DIR="")
    assert "this server has no archive: start it with TOPICS_ARCHIVE_DIR" in refused(pair, mirror)
    assert "2 records" in pair.promote("new").out


def test_a_mirror_whose_disk_is_full_says_so_loses_nothing_and_goes_on_when_there_is_room(
    pair: MirroredServer, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk, topics.connect(pair.url) as log:
        pair.to = disk.root / "mirror"
        mirror = pair.follow()
        log.append("orders", list(range(100)))
        pair.caught_up()
        disk.fill()
        log.append("orders", ["x" * 10_000] * 100)
        mirror.read_to(f"{pair.to} needs more room, and the mirror continues once it is there")
        shown = run(["mirror", "--status", "--to", str(pair.to)], pair.home)
        assert (shown.code, "needs more room" in shown.out) == (0, True), shown
        shown = run(["mirror", "--status", "--to", str(pair.to), "--metrics"], pair.home)
        assert "\ntopics_mirror_failing 1.0\n" in shown.out
        mirror.end()  # killed while it is full, it finds what it had
        full = pair.promote("new")
        assert (full.code, f"or use `topics restore --from {pair.to}`" in full.err) == (1, True), full
        early = run(["restore", "--from", str(pair.to), "--to", str(pair.home / "early")], pair.home)
        assert early.code == 0, early
        mirror = pair.follow(until="needs more room")
        disk.free()
        mirror.read_to("follows http")
        status = pair.caught_up()
        assert (status["error"], status["holes"]) == ("", 0)
        mirror.end()
        assert "1 topic, 200 records" in pair.promote("new").out
    with topics.open(pair.home / "early") as log:
        assert [record.data for record in log.page("orders", limit=100).records] == list(range(100))


def test_a_key_that_is_wrong_or_missing_is_refused_with_the_option(tmp_path: Path) -> None:
    pair = MirroredServer(tmp_path, TOPICS_API_KEYS="right-key-0123456789:admin,read-key-0123456789:read")
    try:
        assert "wants a key, and none was sent: give one of its keys with --key-file or TOPICS_KEY" in refused(pair)
        wrong = pair.follow(until="topics: ", TOPICS_KEY="wrong-key-0123456789")
        assert "does not know the key that was sent" in refused(pair, wrong)
        assert "admin" in refused(pair, pair.follow(until="topics: ", TOPICS_KEY="read-key-0123456789"))
        pair.follow(TOPICS_KEY="right-key-0123456789").end()
    finally:
        pair.server.end()


def test_a_server_without_tls_ends_a_mirror_that_wants_it(pair: MirroredServer) -> None:
    """It asked again for ever, with a word of OpenSSL."""
    secure = pair.url.replace("http://", "https://")
    ran = run(["mirror", secure, "--to", str(pair.to)], pair.home)
    said = (
        f"topics: {secure}: the server answered without TLS: write http:// in the place of https://, or name the port"
    )
    assert (ran.code, said in ran.err) == (1, True), ran
    assert said[8:] in pair.status()["error"]


def test_a_directory_that_is_no_mirror_is_left_as_it_is(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("orders", [1])
    before = sorted((tmp_path / "data").rglob("*"))
    for arguments, sentence in (
        (("mirror", "http://127.0.0.1:1", "--to", "data"), "data, which is a data directory: name a path elsewhere"),
        (("mirror", "--to", "mirror"), "no server is named"),
        (("mirror", "http://127.0.0.1:1", "--to", "mirror", "--timeline", "../x"), "--timeline is '../x': give the"),
        (("mirror", "no-url", "--to", "mirror"), "URL is 'no-url': begin with http"),
        (("mirror", "http://h", "--to", "mirror", "--timeout", "inf"), "--timeout is inf: use a number"),
        (("mirror", "http://h", "--to", "mirror", "--every-ms", "9" * 20), "--every-ms is '99999999999999999999': use"),
        (("mirror", "http://h", "--to", "mirror", "--retain-ms", "9" * 20), "--retain-ms is '99999999999999999999'"),
        (("mirror", "http://h", "--to", "mirror", "--name", "a\nb"), r"--name is 'a\nb': use characters that can be"),
        (("mirror", "http://h", "--to", "mirror", "--name", "a\udcff"), r"--name is 'a\udcff': use characters that"),
        (("mirror", "http://h", "--to", "mirror", "--name", ""), "--name is '': give a name, or leave it out for that"),
        (("mirror", "http://h", "--to", "mirror", "--timeline", ""), "--timeline is '': give the name that the mirror"),
        (
            ("mirror", "http://h", "--to", "mirror", "--key-file", ""),
            "--key-file is empty: give it a value, or leave it",
        ),
        (("mirror", "--status", "--to", "mirror", "--name", ""), "--name has no effect with --status: leave it out"),
        (("mirror", "http://h", "--to", "mirror", "--json"), "--json has no effect without --status: leave it out"),
        (("mirror", "http://h", "--to", "mirror", "--max-lag-ms", "5"), "--max-lag-ms has no effect without"),
        (("mirror", "http://h", "--status", "--to", "mirror"), "URL has no effect with --status: leave it out"),
        (("mirror", "--status", "--to", "mirror", "--retain-ms", "5"), "--retain-ms has no effect with --status"),
        (("mirror", "--status", "--to", "none"), "there is no mirror in it: name the directory of `topics mirror URL"),
        (("mirror", "--status", "--to", "data"), "there is no mirror in it: name the directory of `topics mirror URL"),
        (("promote", "--from", "none", "--to", "new"), "there is no mirror in"),
        (("promote", "--from", "data", "--to", "new"), "there is no mirror in"),
    ):
        words = [
            str(tmp_path / word) if word in ("data", "mirror", "none", "new") and at else word
            for at, word in enumerate(arguments)
        ]
        ended = run(words, tmp_path)
        assert (ended.code, sentence in ended.err) == (2, True), ended
    assert sorted((tmp_path / "data").rglob("*")) == before
    assert not (tmp_path / "mirror").exists()


def test_a_mirror_is_made_in_no_archive_and_not_among_backups(tmp_path: Path) -> None:
    """By no path to it: a restore of the backups would take the mirror for them."""
    timeline, backup = (
        tmp_path / "ar" / "2026-11-29T04-29-11Z-7b577a33",
        tmp_path / "bk" / "2026-11-29T04-29-11Z",
    )
    for directory in (timeline, backup):
        directory.mkdir(parents=True)
    for to, sentence in (
        (tmp_path / "ar" / "m", "which is an archive: name a path elsewhere"),
        (tmp_path / "bk" / "m", "which has backups: name a path elsewhere"),
        (tmp_path / "m1" / ".." / "bk", f"in {tmp_path}/bk, which has backups: name a path elsewhere"),
    ):
        ran = run(["mirror", "http://127.0.0.1:9", "--to", str(to)], tmp_path)
        assert (ran.code, sentence in ran.err) == (2, True), ran.err
    assert not (tmp_path / "m1").exists()


@pytest.mark.parametrize("command", [["mirror", "http://127.0.0.1:9"], ["promote", "--from", "."]])
def test_a_bucket_is_no_directory_of_a_mirror(command: list[str], tmp_path: Path) -> None:
    ran = run([*command, "--to", "s3://b/q"], tmp_path)
    assert "--to is 's3://b/q', which is on no disk: name a directory (`topics copy-backup` copies" in ran.err


def test_a_mirror_follows_on_with_a_warning_where_something_else_is_above_it_now(pair: MirroredServer) -> None:
    """A file that came later ended it at its next start."""
    pair.follow().end()
    (pair.home / "topics.json").touch()
    mirror = pair.follow()
    assert (
        f"in {pair.home}, which is a data directory, which takes it for a part or for damage: stop, and" in mirror.text
    )
    pair.caught_up()
    mirror.end()
    ran = run(["mirror", pair.url, "--to", str(pair.home / "new")], pair.home)
    assert (ran.code, f"in {pair.home}, which is a data directory: name a path elsewhere" in ran.err) == (2, True), ran


def test_a_directory_where_nothing_can_be_written_is_named_by_its_option(tmp_path: Path) -> None:
    """A file system that is read-only was named without the option, and with no remedy."""
    ran = run(["mirror", "http://127.0.0.1:9", "--to", "/proc/mirror"], tmp_path)
    said = "topics: --to is '/proc/mirror', where nothing can be written: No such file or directory: name another"
    assert (ran.code, ran.err.startswith(said)) == (2, True), ran


def test_a_mirror_whose_note_is_damaged_has_a_remedy_that_works(pair: MirroredServer) -> None:
    """`topics promote` named itself as the remedy."""
    mirror = pair.follow()
    with topics.connect(pair.url) as log:
        log.append("orders", list(range(5)))
    pair.caught_up()
    mirror.end()
    (pair.to / "mirror.json").write_text("junk")
    remedy = ["restore", "--from", str(pair.to)]
    for ran in (pair.promote("new"), run(["mirror", pair.url, "--to", str(pair.to)], pair.home)):
        assert (ran.code, f"`topics {' '.join(remedy)}` makes a data directory of this one" in ran.err) == (1, True), (
            ran
        )
    assert "1 topic, 5 records" in run([*remedy, "--to", str(pair.home / "new")], pair.home).out


def test_a_damaged_status_names_what_writes_it_again(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("junk")
    ran = run(["mirror", "--status", "--to", str(tmp_path)], tmp_path)
    assert ran.code == 1
    assert ran.err.endswith(": `topics mirror` writes it again when it runs\n"), ran


def test_a_pipe_in_a_mirror_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "status.json")
    shown = run(["mirror", "--status", "--to", str(tmp_path)], tmp_path)
    said = "is damaged: it is no regular file: `topics mirror` writes it again when it runs"
    assert (shown.code, shown.err) == (1, f"topics: {tmp_path}/status.json {said}\n")
    os.mkfifo(tmp_path / "mirror.json")
    ran = run(["mirror", "http://127.0.0.1:9", "--to", str(tmp_path)], tmp_path)
    assert (ran.code, ran.err) == (1, f"topics: {tmp_path}/mirror.json: it is no regular file: move it away\n")


def test_a_mirror_without_a_status_is_one_all_the_same(tmp_path: Path) -> None:
    """Its disk was full from its start on."""
    (tmp_path / "mirror.json").touch()
    ran = run(["mirror", "--status", "--to", str(tmp_path)], tmp_path)
    said = f"topics: {tmp_path}/status.json was not written yet: make room on its disk, and let `topics mirror` run\n"
    assert (ran.code, ran.err) == (1, said)


def test_a_mirror_does_not_begin_below_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    """It began anew in the directory below the mount point, and filled another disk."""
    table, disk = tmp_path / "fstab", tmp_path / "a disk"
    table.write_text(f"# a comment\n/dev/sdb {str(disk).replace(' ', chr(92) + '040')} ext4 defaults 0 2\nnone\n")
    for to in (disk, disk / "mirror"):
        with pytest.raises(StorageError, match=f"--to is '{to}', and {disk} of {table} is not mounted: mount it"):
            check_mounted(str(to), str(table))
    table.write_text("/dev/sda / ext4 defaults 0 1\nproc /proc proc defaults 0 0\n")
    for other in (tmp_path / "a disk.2", Path("/proc/mirror")):
        check_mounted(str(other), str(table))
    check_mounted(str(disk), str(tmp_path / "none"))


def test_a_mirror_whose_disk_is_unmounted_waits_and_writes_nothing_in_its_place(pair: MirroredServer) -> None:
    mirror = pair.follow()
    pair.caught_up()
    pair.server.end()
    mirror.read_to("no answer from")
    disk = pair.to.rename(pair.home / "disk")
    pair.to.mkdir()
    pair.serve()
    mirror.read_to(f"{pair.to} is another directory now, as without its disk: mount that one again")
    assert not {path.name for path in pair.to.iterdir()} - {"status.json"}, "which a step in progress may have written"
    shutil.rmtree(pair.to)
    disk.rename(pair.to)
    mirror.read_to("follows http")
    pair.caught_up()
    mirror.end()

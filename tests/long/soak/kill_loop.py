"""A server that is killed again and again while clients write, delete, cap and recreate: nothing acknowledged is lost.

Goal: after every restart each topic holds exactly what was answered, give or take the one call that was cut off.
Method: every writer owns some topics, so it always knows what they must hold (model.py); one topic is shared by all, to
mix their writes in one commit. Each life of the server has other settings: shards, file sizes, commit primitive, ring.
It ends by SIGKILL, by SIGTERM, or by SIGKILL in the recovery of the next one. Operations are chosen by the seed; when
the kill strikes is up to the machine.

    python -m tests.long.soak.kill_loop --cycles 200 --seed 7 [--io portable] [--directory D] [--jobs 4]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.long.soak.model import Operation, Record, Topic, outcomes
from tests.long.soak.restores import Backup, Backups, Past, archive_settings, check_restores, now_ms
from tests.long.soak.server_client import Client, Gone, Server, run_until_gone
from topics.store.format.compressed_segment import is_compressed

WRITERS = 4
TOPICS_A_WRITER = 3
_TAGS = (None, "a", "a:1", "a:2", "b", "")
_MATCHES = (None, None, "a", "a:*", "b", "*", "")
_SHARED = "shared"
RESTORED = 0.4
"""Share of the starts at which a backup and the archive of the life before are restored."""


COMPRESSED: dict[str, Any] = {
    "segment_codec": "zstd",
    "checkpoint_wal_bytes": 32 << 10,
    "segment_max_events": 5,
    "pack_run_bytes": 512,
    "hot_retain_segments": 0,
}
"""With a cold directory each checkpoint moves segments there, compressed."""


def choose_settings(rng: random.Random, io: str = "") -> dict[str, Any]:
    """Small everything, so that rotation, checkpoints, seals and merges happen all the time. io: this one, not any."""
    chosen = {
        "wal_shards": rng.choice((1, 1, 2, 3)),
        "wal_file_bytes": rng.choice((64 << 10, 256 << 10, 4 << 20)),
        "checkpoint_wal_bytes": rng.choice((32 << 10, 256 << 10, 64 << 20)),
        "segment_max_events": rng.choice((5, 100, 10_000)),
        "hot_retain_segments": rng.choice((0, 1, 4)),
        "segment_codec": rng.choice(("none", "zstd")),
        "compact_below": rng.choice((0.0, 0.5, 1.0)),
        "segment_max_bytes": rng.choice((16 << 10, 1 << 20)),
        "pack_run_bytes": rng.choice((512, 8 << 10, 64 << 10)),
        "hot_tail_bytes": rng.choice((0, 64 << 10, 64 << 20)),
        "sync_every_ms": rng.choice((5, 100, 1000)),
        "io": rng.choice(("uring", "uring", "portable")),
        "commit": rng.choice(("auto", "link", "direct", "dsync")),
        "http_parser": rng.choice(("httptools", "h11")),
    }
    return chosen | (COMPRESSED if rng.random() < 0.4 else {}) | ({"io": io} if io else {})


def choose_config(rng: random.Random) -> dict[str, Any]:
    # Keys of all lives are sent again: none may have been forgotten by then, however slow the
    # machine.
    config: dict[str, Any] = {"durability": rng.choice(("disk", "fsync")), "idempotency_window_ms": 1 << 40}
    cap = rng.random()
    if cap < 0.25:
        config["cap_records"] = rng.choice((1, 20, 300))
    elif cap < 0.4:
        config["cap_bytes"] = rng.choice((100, 5000))
    return config


class Owned:
    """A topic of one writer: the model, and the call that was cut off."""

    def __init__(self, name: str) -> None:
        self.model = Topic(name)
        self.past = Past(self.model)
        self.cut_off: Operation | None = None


class Writer:
    """One client. `run` until the server is away; `verify` when it is back."""

    def __init__(self, number: int, seed: int, counts: Counter[str]) -> None:
        self.number = number
        self.rng = random.Random(f"{seed} writer {number}")
        self.topics = [Owned(f"w{number}-{index}") for index in range(TOPICS_A_WRITER)]
        self.counts = counts
        self.error: BaseException | None = None
        self.serial = 0
        self.shared_acked: dict[int, str] = {}
        self.shared_unknown: set[str] = set()

    # --- writing -----------------------------------------------------------------------------------------------------
    def run(self, address: str) -> None:
        self.error = run_until_gone(address, self._call)

    def _call(self, client: Client) -> None:
        if self.rng.random() < 0.3:
            self._share(client)
        else:
            self._step(client, self.rng.choice(self.topics))

    def _share(self, client: Client) -> None:
        data = self._data(10)
        self.shared_unknown.add(data)
        status, answer = client.ask("POST", f"/v0/topics/{_SHARED}", {"records": [{"data": data}]})
        if status == 503:
            raise Gone("stopping")
        assert status in {200, 201}, (status, answer)
        seq = answer["first_seq"]
        assert seq not in self.shared_acked, f"{_SHARED}: seq {seq} was given twice"
        self.shared_acked[seq] = data
        self.shared_unknown.discard(data)

    def _step(self, client: Client, owned: Owned) -> None:
        rng, topic = self.rng, owned.model
        path = f"/v0/topics/{topic.name}"
        choice = rng.random()
        if not topic.exists and choice < 0.5:
            config = choose_config(rng)
            self._do(client, owned, Operation("create", (config,)), "PUT", path, config)
        elif choice < 0.7 or not topic.exists:
            self._write(client, owned)
        elif choice < 0.82:
            before = rng.randint(0, topic.head + 2) if rng.random() < 0.5 else None
            match = rng.choice(_MATCHES) if before is not None else rng.choice(_MATCHES[2:])
            body = {"before_seq": before, "match": match}
            self._do(client, owned, Operation("delete_records", (before, match)), "POST", f"{path}/delete", body)
        elif choice < 0.86:
            config = choose_config(rng)
            self._do(client, owned, Operation("create", (config,)), "PUT", path, config)
        elif choice < 0.89:
            self._do(client, owned, Operation("delete"), "DELETE", path, None)
        elif choice < 0.94:
            self._do(client, owned, *reader_call(rng, topic, path))
        else:
            self._read(client, topic, rng.randint(0, topic.head))

    def _write(self, client: Client, owned: Owned) -> None:
        rng, topic = self.rng, owned.model
        kind = rng.random()
        count = 1 if kind < 0.5 else rng.randint(2, 60) if kind < 0.97 else 2000
        width = 40 if kind < 0.9 else 400 if kind < 0.99 else 30_000 // count
        records = [Record(as_bytes_at_times(rng, self._data(width)), rng.choice(_TAGS)) for _ in range(count)]
        key = None
        if rng.random() < 0.4:
            resend = topic.keys and rng.random() < 0.3
            key = rng.choice(list(topic.keys)) if resend else f"k{self.number}-{self.serial}"
        config = None if topic.exists else choose_config(rng)
        rows = [record.row for record in records]
        body = {"records": rows, "idempotency_key": key, "config": config}
        self._do(client, owned, Operation("write", (records, key), config), "POST", f"/v0/topics/{topic.name}", body)

    def _do(  # noqa: PLR0917
        self, client: Client, owned: Owned, operation: Operation, method: str, path: str, body: Any
    ) -> None:
        """Sends it; the answer must be the model's."""
        owned.cut_off = operation
        begin_ms = now_ms()
        status, answer = client.ask(method, path, body)
        if status == 503:
            owned.cut_off = None
            raise Gone("stopping")
        assert status in {200, 201}, (owned.model.name, operation.method, status, answer)
        owned.cut_off = None
        expected = operation.apply(owned.model)
        owned.past.add(begin_ms, operation)
        model = owned.model
        if operation.method == "write":
            assert (answer["first_seq"], answer["last_seq"]) == (expected.first, expected.last), (model.name, answer)
        elif operation.method == "delete_records":
            found = (answer["deleted"], answer["earliest_seq"], answer["head_seq"], answer["count"], answer["bytes"])
            assert found == (expected, model.earliest, model.head, len(model.records), model.bytes), (model.name, found)
        self.counts[operation.method] += 1

    def _data(self, width: int) -> str:
        self.serial += 1
        return f"{self.number}:{self.serial}:".ljust(width, "x")

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read(self, client: Client, topic: Topic, cursor: int) -> None:
        """One page from the cursor must be the model's."""
        if (difference := read_difference(client, topic, cursor)) is not None:
            raise AssertionError(difference)
        self.counts["read"] += 1

    def verify(self, client: Client) -> None:
        """After a restart: every topic is in one of the states that are right, and continues from there."""
        for owned in self.topics:
            differences = []
            for state in outcomes(owned.model, owned.cut_off):
                difference = whole_difference(client, state)
                if difference is None:
                    owned.model = state
                    break
                differences.append(difference)
            else:
                raise AssertionError(f"{owned.model.name} (cut off: {str(owned.cut_off)[:200]}): {differences}")
            owned.cut_off = None
            owned.past.end(owned.model)
            self.counts["verified records"] += len(owned.model.records)


def as_bytes_at_times(rng: random.Random, text: str) -> str | bytes:
    """A payload for this text: every fourth one is bytes, which are not text."""
    return b"\xff" + text.encode() if rng.random() < 0.25 else text


def reader_call(rng: random.Random, topic: Topic, path: str) -> tuple[Operation, str, str, Any]:
    """The creation of the topic's named reader, or a move of it; it may be anywhere up to the head."""
    if topic.reader < 0:
        return Operation("put_reader"), "PUT", f"{path}/readers/r", {}
    seq = rng.randint(0, topic.head)
    return Operation("seek", (seq,)), "POST", f"{path}/readers/r/seek", {"seq": seq}


def whole_difference(client: Client, topic: Topic) -> str | None:
    """Return how the server's topic differs from the model; None: it does not."""
    status, state = client.ask("GET", f"/v0/topics/{topic.name}")
    if not topic.exists:
        return None if status == 404 else f"there: {state}"
    if status != 200:
        return f"{status} {state}"
    expected = topic.state()
    config = expected.pop("config")
    found = {name: state[name] for name in expected}
    if found != expected:
        return f"{found} should be {expected}"
    found = {name: state["config"][name] for name in config}
    if found != config:
        return f"{found} should be {config}"
    status, answer = client.ask("GET", f"/v0/topics/{topic.name}/readers")
    positions = {row["reader"]: row["committed"] for row in answer["readers"]} if status == 200 else status
    if positions != ({"r": topic.reader} if topic.reader >= 0 else {}):
        return f"readers {positions} should be at {topic.reader}"
    cursor = 0
    while True:
        difference = read_difference(client, topic, cursor)
        if difference is not None:
            return difference
        later = [seq for seq in topic.records if seq > cursor][:1000]
        if not later:
            return None
        cursor = later[-1]


def read_difference(client: Client, topic: Topic, cursor: int) -> str | None:
    body = {"from_seq": cursor, "limit": 1000, "include_tags": True, "max_batch_bytes": 8 << 20}
    status, answer = client.ask("POST", f"/v0/topics/{topic.name}/diff", body)
    if status == 503:
        raise Gone("stopping")
    if status != 200:
        return f"{topic.name}: a read from {cursor}: {status} {answer}"
    tombstone = answer["tombstone"]
    gap = tombstone and (tombstone["gap_from"], tombstone["gap_to"])
    if gap != topic.tombstone(cursor):
        return f"{topic.name}: tombstone {gap} at {cursor} should be {topic.tombstone(cursor)}"
    found = {row["$seq"]: Record.of(row) for row in answer["records"]}
    expected = {seq: record for seq, record in topic.records.items() if seq > cursor}
    expected = dict(list(expected.items())[:1000])
    if found == expected:
        return None
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    wrong = [seq for seq in found.keys() & expected.keys() if found[seq] != expected[seq]]
    return f"{topic.name} from {cursor}: missing {missing[:9]} extra {extra[:9]} wrong {wrong[:9]}"


def verify_shared(client: Client, writers: list[Writer], last_head: int) -> int:
    """Every acknowledged record once, at its seq; nothing twice; nothing that no client wrote. Returns the head."""
    acked: dict[int, str] = {}
    for writer in writers:
        assert not acked.keys() & writer.shared_acked.keys(), f"{_SHARED}: a seq was given twice"
        acked |= writer.shared_acked
    unknown = set().union(*(writer.shared_unknown for writer in writers))
    found: dict[int, str] = {}
    cursor, caught_up = 0, not acked
    while not caught_up:
        status, answer = client.ask("POST", f"/v0/topics/{_SHARED}/diff", {"from_seq": cursor, "limit": 1000})
        assert status == 200, answer
        assert answer["tombstone"] is None, answer["tombstone"]
        found |= {row["$seq"]: row["data"] for row in answer["records"]}
        cursor, caught_up = answer["next_from_seq"], answer["caught_up"]
    lost = [seq for seq, data in acked.items() if found.get(seq) != data]
    assert not lost, f"{_SHARED}: acknowledged records lost or altered: {lost[:10]}"
    strange = [seq for seq, data in found.items() if seq not in acked and data not in unknown]
    assert not strange, f"{_SHARED}: records nobody wrote: {strange[:10]}"
    assert len(set(found.values())) == len(found), f"{_SHARED}: a record is there twice"
    for seq, data in found.items():  # of those cut off, the ones found are there to stay
        if seq not in acked:
            writer = writers[int(data.partition(":")[0])]
            writer.shared_acked[seq] = data
    head = max(found, default=0)
    assert head >= last_head, f"{_SHARED}: the head went back from {last_head} to {head}"
    for writer in writers:
        writer.shared_unknown.clear()
    return head


def remove_old_backups(directory: Path, kept: list[Backup]) -> None:
    """Remove complete backups of lives before the last one, whose states are not known any more."""
    for path in (directory / "backups").glob("*Z*"):
        if not path.name.endswith(".partial") and str(path) not in {backup.path for backup in kept}:
            shutil.rmtree(path)


def run(
    directory: Path, cycles: int, seed: int, life_s: float = 2.5, io: str = "", *, least_writes: int = 0
) -> Counter[str]:
    """Raises AssertionError at the first thing that is wrong; the directory is as it was then.

    least_writes: a life continues until its writers have made so many, on a busy machine longer than `life_s`.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    writers = [Writer(number, seed, counts) for number in range(WRITERS)]
    backups: list[Backup] = []
    head, shards = 0, 1
    for cycle in range(cycles + 1):
        settings = choose_settings(rng, io) | {"cold_dir": directory / "cold"} | archive_settings(directory, rng)
        if rng.random() < 0.8:
            settings["wal_shards"] = shards  # another number makes a hole in the archive
        shards = settings["wal_shards"]
        last = f"cycle {cycle}: {settings}"
        (directory / "cycle").write_text(last)
        if rng.random() < 0.25:
            server = Server(directory, settings)
            time.sleep(rng.uniform(0.1, 0.6))
            server.kill()
            counts["killed early"] += 1
        server = Server(directory, settings)
        try:
            address = server.wait_ready()
            client = Client(address)
            for writer in writers:
                writer.verify(client)
            head = verify_shared(client, writers, head)
            owned = [each for writer in writers for each in writer.topics]
            if cycle and rng.random() < RESTORED:
                counts += check_restores(directory, client, [(o.model.name, o.past) for o in owned], backups, rng)
            for each in owned:
                each.past.begin(each.model)
            client.close()
            segments = (directory / "cold").glob("topics/*/seg-*.data")
            counts["compressed segments at starts"] += sum(is_compressed(path.read_bytes()[:16]) for path in segments)
            if cycle == cycles:
                server.stop()
                break
            backed_up = Backups(address, random.Random(f"{seed} backups {cycle}"))
            threads = [threading.Thread(target=writer.run, args=(address,)) for writer in writers] + [backed_up]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.05, life_s))
            enough = (cycle + 1) * least_writes
            while counts["write"] < enough and not any(writer.error for writer in writers):
                time.sleep(0.01)
            if rng.random() < 0.2:
                server.stop()
                counts["stopped"] += 1
            else:
                server.kill()
                counts["killed"] += 1
            for thread in threads:
                thread.join()
            for worker in (*writers, backed_up):
                if worker.error is not None:
                    raise worker.error
            backups = backed_up.done
            remove_old_backups(directory, backups)
        except BaseException as error:
            error.add_note(f"{last}; seed {seed}; {directory}\n{server.tail()}")
            raise
        finally:
            server.process.kill()
            server.process.wait()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--life", type=float, default=2.5, help="longest life of a server, in seconds")
    parser.add_argument("--io", choices=("uring", "portable"), default="", help="for all lives; by default any")
    parser.add_argument("--directory", type=Path, help="kept; by default a temporary one, removed when all is well")
    parser.add_argument("--jobs", type=int, default=1, help="servers side by side; they share the cycles")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="topics-soak-"))
    rest = (options.life, options.io)
    jobs = [
        (directory / str(job), len(range(job, options.cycles, options.jobs)), options.seed + job, *rest)
        for job in range(options.jobs)
    ]
    print(f"seeds {options.seed} to {options.seed + options.jobs - 1}, {directory}", flush=True)
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for each in pool.imap_unordered(run_job, jobs):
            counts += each
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if options.directory is None:
        shutil.rmtree(directory)


def run_job(job: tuple[Path, int, int, float, str]) -> Counter[str]:
    """One of several side by side; an AssertionError of any ends all."""
    directory, cycles, seed, life_s, io = job
    directory.mkdir(parents=True, exist_ok=True)
    return run(directory, cycles, seed, life_s, io)


if __name__ == "__main__":
    main()

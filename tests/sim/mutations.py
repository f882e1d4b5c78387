"""The mutants that mutants.py runs: each replaces texts of the code by others."""

from __future__ import annotations

from typing import NamedTuple

_HOLDS = "tests/contract/records/test_readers.py"
_STARTS = "tests/sim/whole/scenarios/test_starts.py"
_SEQS = "tests/sim/whole/scenarios/test_reserved_seqs.py"
_DELETES = "tests/sim/whole/scenarios/test_lasting_deletes.py"
_CHECKPOINTS = "tests/sim/whole/scenarios/test_failing_checkpoints.py"
_FORWARDED = "tests/sim/whole/scenarios/test_forwarded_records.py"
_CARRIED = "tests/engine/routers/test_carried_steps.py"
_IN_PLACE = "tests/store/wal/test_in_place.py"
_WAITING = "tests/sim/whole/scenarios/test_waiting_readers.py"
_FULL_DISKS = "tests/sim/whole/scenarios/test_full_disks.py"
_RECOVERY = "tests/store/recovery/test_recovery.py"
_CRASHES = "tests/store/recovery/test_crash_points.py"
_ECHO = "tests/sim/world/test_echo.py"
_LANE = "tests/server/test_lane.py"
_FILES = "tests/files/test_beside_checkpoints.py"
_BESIDE = "tests/embedded/calls/test_readers_beside.py"
_BYTES = "tests/embedded/appends/test_records_of_bytes.py"
_LARGE = "tests/engine/write/test_large_appends.py"
_COMPRESSED = "tests/store/checkpoint/test_compressed_segments.py"
_MOVES = (
    "tests/sim/test_sweeps.py::test_a_life_may_end_at_any_step_of_a_move_to_compressed_segments_and_of_deletes_in_them"
)
_AUDIENCE = "tests/engine/delivery/test_audience.py"
_CLAIMS = "tests/contract/queues/test_waiting_claims.py"
_IMAGES = "tests/engine/shared/test_topic_snapshot.py"
_FIRST_LEASES = "tests/engine/write/test_first_leases.py"
_GONE = "tests/engine/write/test_gone_records.py"
_POISON = "tests/engine/queue/test_dead_letter.py"
_SEQ_TIMES = "tests/engine/index/test_seq_times.py"
_LEASES = "tests/engine/state/test_leases.py"
_ATTEMPTS = "tests/contract/queues/test_attempts.py"
_REDRIVE = "tests/contract/queues/test_redrive.py"
_FILTERS = "tests/contract/records/test_filters.py"
_DELAYS = "tests/contract/queues/test_delays.py"
_PREFIXES = "tests/contract/streams/test_prefixes.py"
_TTLS = "tests/contract/records/test_record_ttl.py"
_BACKUPS = "tests/store/backup/test_write_backup.py"
_RESTORES = "tests/embedded/calls/test_backup_calls.py"
_ARCHIVES = "tests/store/archive/test_archiver.py"
_MIRRORS = "tests/store/mirror/test_mirror.py"
_TIMES = "tests/store/archive/test_restore_archive.py"
_ARCHIVED_SEQS = "tests/engine/recovery/test_archived_seqs.py"
_RECORDS = "tests/embedded/calls/test_restore_call.py"
_CORES = "tests/store/cores/test_set_cores.py"
_NEIGHBOURS = "tests/server/service/test_neighbours.py"
_RELAYS = "tests/server/service/test_relays.py"
_SPANNING = "tests/http/spanning"
_RELAYED_WRITES = "tests/server/service/test_relayed_writes.py"
_STREAM_RELAYS = "tests/server/service/cores/test_stream_relays.py"
_FEEDS = "tests/server/service/cores/test_feed_lives.py"
_FAR_FEED = "tests/http/spanning/test_far_feed.py"
_SUPERVISOR = "tests/server/service/test_supervisor.py"
_HAND_OVERS = "tests/loop/handover/test_hand_overs.py"
_PUBLISHES = "tests/ws/test_lone_publishes.py"
_QUICK = "tests/embedded/appends/test_quick_appends.py"
_ACCESS_LOGS = "tests/server/service/test_access_log_lives.py"


class Mutant(NamedTuple):
    name: str
    patches: tuple[tuple[str, str, str], ...]
    """(file, text, its replacement)"""
    places: int = 1
    """The number of times that each text is in its file; all are replaced."""
    hunt: str = "records"
    """The seeds that have to notice (kinds.py), or the file of the tests that do."""


def _one(name: str, path: str, text: str, instead: str, hunt: str = "records") -> Mutant:
    return Mutant(name, ((path, text, instead),), hunt=hunt)


_CHAIN = (
    "        self._ring.queue_commit(expect(FILE, commit.on_write), expect(FILE, commit.on_sync), fd, buffer, offset)"
)
_HARD_CHAIN = """\
        def then(res: int) -> None:
            commit.on_write(res)
            self._ring.queue_fsync(expect(FILE, commit.on_sync), fd, data_only=True)

        self._ring.queue_write(expect(FILE, then), fd, buffer, offset, dsync=False)"""

_AS_JSON = """\
def as_json(frames):
    from topics.store.format.log_format import Frame

    data, altered = bytes(frames), []
    while data:
        size = 4 + int.from_bytes(data[:4], "little")
        altered.append(Frame.unpack(data[:size], "a copy")._replace(payload_kind=0).pack())
        data = data[size:]
    return memoryview(b"".join(altered))


"""

MUTANTS = (
    _one("an ack before its sync", "store/wal/shard.py", "fsync=batch.wants_sync,", "fsync=False,"),
    _one(
        "the chain's second result ignored",
        "store/commits/primitive.py",
        "return _DONE if not chained or sync_res == 0 else Verdict.FAILED",
        "return _DONE",
    ),
    _one(
        "a short write taken for a whole one",
        "store/commits/primitive.py",
        "if write_res == expected:",
        "if write_res > 0:",
    ),
    _one(
        "a sync beside unsynced bytes covers its own range only",
        "store/commits/commit_choice.py",
        "if shard.unsynced or setting ==",
        "if setting ==",
    ),
    _one("a failed background sync ignored", "store/wal/background_sync.py", "if res < 0:", "if res < -1000:"),
    _one(
        "a replaced file's directory is not synced",
        "store/disk/whole_files.py",
        "    await files.rename(temporary, path)\n    await in_place(files.sync_directory(os.path.dirname(path)))",
        "    await files.rename(temporary, path)",
    ),
    _one(
        "a new log file's directory is not synced",
        "store/wal/wal_files.py",
        "await files.sync_directory(self._path)",
        "pass",
    ),
    _one(
        "the directories of a killed start are not synced",
        "store/disk/data_directory.py",
        "        await sync_parents(loop, locked.path, locked.made_in)\n",
        "",
    ),
    _one(
        "a snapshot written in place, without a rename",
        "store/disk/whole_files.py",
        "    await write_new_file(files, temporary, *data)\n    await files.rename(temporary, path)",
        "    await write_new_file(files, path, *data)",
    ),
    _one(
        "a snapshot renamed before it is synced",
        "store/disk/whole_files.py",
        "    await write_new_file(files, temporary, *data)\n",
        "    await write_new_file(files, temporary, *data, sync=False)\n",
    ),
    _one(
        "copies not synced before the log is recycled",
        "store/checkpoint/checkpoint_steps.py",
        "        await evacuation.sync()\n        return evacuation\n",
        "        return evacuation\n",
    ),
    _one(
        "a segment that a checkpoint ended not synced",
        "store/checkpoint/segment_copy.py",
        "        await self._context.sync(self._fd)\n",
        "",
    ),
    _one(
        "copies after one that failed counted",
        "store/disk/side_by_side.py",
        "            if not self._failures:\n                self._take(result)",
        "            self._take(result)",
        "tests/store/checkpoint/test_side_by_side.py",
    ),
    _one(
        "topics copied together whose changes since are not noticed",
        "engine/recovery/few_rows.py",
        "        if chunk is None or chunk.first > first or chunk.end != last + 1:\n",
        "        if chunk is None or chunk.first > first:\n",
        "tests/engine/recovery/test_few_rows.py",
    ),
    _one(
        "topics copied together of which a record has died since",
        "engine/recovery/few_rows.py",
        "        if chunk.live != chunk.count and (chunk.flags[rows] >= DEAD).any():\n",
        "        if False:\n",
        "tests/engine/recovery/test_few_rows.py",
    ),
    _one(
        "rows below those of the log that is emptied left in it",
        "engine/recovery/few_rows.py",
        "    odd = (in_log & ~wanted) | ",
        "    odd = ",
        "tests/engine/recovery/test_few_rows.py",
    ),
    _one(
        "rows below those that are looked at left in the log",
        "engine/recovery/few_rows.py",
        "    odd[begins] |= in_log[begins] & ~rows.are_all[rows.counts > 0]\n",
        "",
        "tests/engine/recovery/test_few_rows.py",
    ),
    _one(
        "the log recycled before the snapshot",
        "store/checkpoint/checkpointer.py",
        "        await self.snapshots.take(clean=clean)\n        self.steps.remove()\n"
        "        for file in chosen.files:\n            await self._log.retire(file)\n",
        "        for file in chosen.files:\n            await self._log.retire(file)\n"
        "        await self.snapshots.take(clean=clean)\n        self.steps.remove()\n",
    ),
    Mutant(
        "a replay that continues after a gap",
        (
            ("store/recovery/log_replay.py", "if file.header.first_batch_no <= self.last_batch_no + 1:", "if True:"),
            (
                "store/recovery/log_replay.py",
                "            if self.last_batch_no + 1 < limit:\n",
                "            if False:\n",
            ),
        ),
        hunt=_RECOVERY,
    ),
    _one(
        "the tail that recovery read is not written again",
        "store/store_start.py",
        "parts = await replay.tail()",
        "parts = []",
    ),
    _one(
        "a partly filled block loses what was in it",
        "store/in_memory/hot_tail.py",
        "        chunk.view[:prefix] = block\n",
        "        chunk.view[:prefix] = bytes(prefix)\n",
    ),
    _one(
        "the last block of a batch that the hot tail passed over is lost",
        "store/wal/commitment.py",
        "            self._tail.pass_over(file.stored.file_id, end_of_batch, self._passed_over)\n",
        "            last = memoryview(bytes(len(self._passed_over)))\n"
        "            self._tail.pass_over(file.stored.file_id, end_of_batch, last)\n",
        "tests/store/wal/test_large_batches.py",
    ),
    _one(
        "a prefetched window taken for another part of its file",
        "store/read/file_prefetch.py",
        "        window.file, window.start, window.used = file, start, 0\n",
        "        window.file, window.used = file, 0\n",
    ),
    _one(
        "a head that comes before its body forgotten",
        "http/lane/single.py",
        "            state.hold_head(view)\n",
        "",
        "tests/server/test_lane.py",
    ),
    _one(
        "a short write of a large record taken for a whole one",
        "store/wal/commitment.py",
        '        self._blocks, self._expected = memoryview(b""), used\n',
        '        self._blocks, self._expected = memoryview(b""), 8000\n',
        "tests/store/wal/test_large_batches.py",
    ),
    _one(
        "files not held while a thread reads them",
        "store/read/lent_pieces.py",
        "            done(None)\n",
        "            self._loan and self._loan.end(); self._lender.release(); done(None)\n",
        hunt="library",
    ),
    _one(
        "records deleted between the steps of a read left out",
        "engine/read/chosen_read.py",
        "                if not len(rows.seqs):\n                    continue\n",
        "                if not len(rows.seqs) or not self._topic.index.live_above([int(rows.seqs[0]) - 1])[0]:\n"
        "                    continue\n",
        "library",
    ),
    _one(
        "a log file that a reader holds used again",
        "store/wal/wal_files.py",
        "        kept = not stored.readers and len",
        "        kept = len",
        hunt="tests/store/wal/test_shard.py",
    ),
    _one(
        "chunks of the hot tail used again while a thread reads them",
        "store/in_memory/hot_tail.py",
        " and not chunk.lent:",
        ":",
        hunt=_BESIDE,
    ),
    _one(
        "batches claim to be synced when they are written",
        "store/wal/commitment.py",
        "batches.written + 1, batches.synced, end.chain",
        "batches.written + 1, batches.written, end.chain",
    )._replace(places=2),
    _one(
        "a floor forgotten when a cap is raised",
        "engine/write/lifecycle.py",
        "log_caps(core.log, topic, now_ms)",
        "pass",
    ),
    _one(
        "a hold that begins frees what a cap took before",
        "engine/readers/reader_calls.py",
        "if config.holds and (found is None or not found.config.holds):",
        "if False:",
        _HOLDS,
    ),
    _one(
        "a seek back of a holding reader frees what a cap took before",
        "engine/readers/reader_positions.py",
        "if reader.config.holds and position < max(reader.staged, reader.committed):",
        "if False:",
        _HOLDS,
    ),
    Mutant(
        "topics reported before the log is cut",
        (
            (
                "store/checkpoint/checkpointer.py",
                "        replay = await (self.steps.cut_here() if scarce else self.steps.cut())\n",
                "        for _ in self.snapshots._catalog.prepare_snapshot(1):\n"
                "            await self._loop.next_pass()\n"
                "        replay = await (self.steps.cut_here() if scarce else self.steps.cut())\n",
            ),
            (
                "store/checkpoint/snapshot_taker.py",
                "        await self._prepare()\n        store = self._store_part(files",
                "        store = self._store_part(files",
            ),
        ),
    ),
    _one(
        "idempotency keys lost at a checkpoint",
        "engine/shared/topic_snapshot.py",
        "within = () if topic.keys is None else topic.keys",
        "within = () if topic.keys else topic.keys or topic.key_store()",
    ),
    _one(
        "seqs not reserved ahead of use",
        "engine/state/topic_numbers.py",
        "return self.next_seq + count - 1 > self.reserved",
        "return False",
    ),
    _one(
        "a crash gap not reported",
        "store/store_start.py",
        "self._catalog.recovered(power_lost=self.power_lost)",
        "self._catalog.recovered(power_lost=False)",
    ),
    _one(
        "deletes of sealed records not flagged",
        "store/checkpoint/checkpointer.py",
        "await self.steps.flag_deleted()",
        "pass",
    ),
    _one(
        "a lost F_MORE ignored",
        "loop/traffic.py",
        "        if res > 0:\n            self.rearm.append(conn)\n        elif res == -errno.ENOBUFS:",
        "        if res > 0:\n            pass\n        elif res == -errno.ENOBUFS:",
    ),
    _one(
        "ENOBUFS ends a receive for good",
        "loop/traffic.py",
        "            self.starved = True\n            self.rearm.append(conn)",
        "            self.starved = True",
    ),
    _one(
        "a connection not closed after its receive, when that ends last",
        "loop/connection.py",
        "        if self.phase >= CLOSING:\n            self._finish()\n\n    def hold",
        "\n    def hold",
        _ECHO,
    ),
    _one(
        "a connection not closed after its send, when that ends last",
        "loop/connection.py",
        "            self._finish()\n            return\n        if res <= 0:",
        "            return\n        if res <= 0:",
        _ECHO,
    ),
    _one("the rest of a short send dropped", "loop/connection.py", "if res < len(flying):", "if res < 0:"),
    _one(
        "an accept that ended well is not armed again",
        "loop/doors/listener.py",
        "        elif res >= 0 or -res in (errno.ECANCELED",
        "        elif res >= 0:\n            return\n        elif -res in (errno.ECANCELED",
    ),
    _one("a delete answered before its sync", "engine/write/delete.py", 'topic.stage_class == "fsync"', "False"),
    Mutant(
        "flags not synced before the snapshot",
        (
            ("store/checkpoint/delete_flags.py", "await in_place(self._files.fdatasync(fd))", "pass"),
            ("store/segments/index_flags.py", "await in_place(files.fdatasync(fd))", "pass"),
        ),
    ),
    _one(
        "lease ids used before they are reserved",
        "engine/shared/lease_ids.py",
        "FrameType.LEASE_IDS, upto,",
        "FrameType.LEASE_IDS, 0,",
        "queues",
    ),
    _one(
        "lease ids lost at a checkpoint",
        "engine/recovery/engine_catalog.py",
        ".restore(image.last_lease)",
        ".restore(0)",
        "queues",
    ),
    _one(
        "an ack answered before its sync",
        "engine/queue/job_removal.py",
        'operation.stage(synced=topic.stage_class == "fsync")',
        "operation.stage(synced=False)",
        "queues",
    ),
    _one(
        "leases that are kept, but not logged",
        "engine/queue/lease_log.py",
        "    _stage(core, topic, LeasesPayload(rows), then)",
        "    then(None)",
        "queues",
    ),
    _one(
        "ends of leases not logged",
        "engine/queue/lease_log.py",
        "    _stage(core, topic, ends, then)",
        "    then(None)",
        "queues",
    ),
    _one(
        "a router's position forgotten by recovery",
        "engine/routers/router_recovery.py",
        "            router.position = forward.position\n",
        "",
        "routers",
    ),
    _one(
        "holes of a router's source forgotten by recovery",
        "engine/routers/router_recovery.py",
        "if forward.holes:",
        "if False:",
        "routers",
    ),
    _one(
        "a router's position lost at a checkpoint",
        "engine/routers/router_recovery.py",
        "router.position = max(router.position, image.position)",
        "pass",
        "routers",
    ),
    _one(
        "a failed sync of copies ignored",
        "store/checkpoint/evacuation.py",
        "        if error is not None:\n            raise failed_sync",
        "        if False:\n            raise failed_sync",
    ),
    _one(
        "a snapshot ahead of the log",
        "store/checkpoint/snapshot_taker.py",
        "        await self.sync_log()\n        self.number = ",
        "        self.number = ",
    ),
    _one(
        "a snapshot's name that a killed process left is not synced",
        "store/recovery/recovery.py",
        'await files.sync_directory(f"{directory}/{SNAPSHOT_DIRECTORY}")',
        "pass",
    ),
    _one(
        "a reservation used before its sync",
        "engine/write/reservations.py",
        "log.when_durable(topic.id, on_durable)",
        "on_durable(None)",
    ),
    _one(
        "a reservation that covers the first record only",
        "engine/state/topic_numbers.py",
        "        return self.next_seq + count - 1 > self.reserved\n",
        "        return self.next_seq > self.reserved\n",
    ),
    _one(
        "order numbers given out again after a checkpoint",
        "engine/recovery/engine_catalog.py",
        "        registry.last_order = max(registry.last_order, image.last_order)\n",
        "",
    ),
    _one(
        "topic ids given out again after a checkpoint",
        "engine/recovery/engine_catalog.py",
        "        registry.note_id(image.last_id)\n",
        "",
    ),
    _one(
        "a failed sync not noted",
        "store/store_start.py",
        "self.log.write_latch.on_latch.append(latch_note.begin)",
        "pass",
    ),
    _one(
        "a failed sync while stopping not noted",
        "store/recovery/session_note.py",
        "    def begin(self) -> None:\n",
        "    def begin(self) -> None:\n        if self._stopped:\n            return\n",
    ),
    _one(
        "the rest of a short write synced by itself",
        "store/wal/commitment.py",
        "self.primitive = Primitive.LINK  # RWF_DSYNC",
        "pass  # RWF_DSYNC",
    ),
    _one(
        "a short lone write not taken back",
        "store/wal/commitment.py",
        "        self._tail.take_back(end.file.stored.file_id, 0 if end.header else end.file.position)\n",
        "        pass\n",
        "tests/engine/write/test_append_lone.py",
    ),
    Mutant(
        "a log file given up before it is synced, and a snapshot ahead of the log",
        (
            (
                "store/wal/sharded_log.py",
                "        for shard in self._shards:\n            await shard.when_synced(file)\n",
                "",
            ),
            (
                "store/checkpoint/snapshot_taker.py",
                "        await self.sync_log()\n        self.number = ",
                "        self.number = ",
            ),
        ),
    ),
    _one(
        "no append refused for the length of the log",
        "store/wal/sharded_log.py",
        "if not bound.is_reached(self.backlog_bytes) or self.write_latch.closed:",
        "if True:",
        "tests/contract/durability/test_log_bound.py",
    ),
    _one(
        "a log found long counts as empty",
        "store/checkpoint/checkpointer.py",
        "        bound.on_emptied(self._log.held_bytes)\n        bound.on_pressed",
        "        bound.on_pressed",
        "tests/contract/durability/test_log_bound.py",
    ),
    _one(
        "no commit held back",
        "store/wal/shard_state.py",
        "self._bound.held_ns()",
        "0",
        "tests/contract/durability/test_log_bound.py",
    ),
    _one(
        "a copy in the cold directory not synced", "store/checkpoint/tiering.py", "await files.fsync(write_fd)", "pass"
    )._replace(places=2),
    _one(
        "the last $ts forgotten by recovery",
        "engine/state/topic_numbers.py",
        "        self.last_ts = max(self.last_ts, ts)\n",
        "",
    ),
    _one(
        "expiry not logged",
        "engine/write/retention.py",
        'if topic.stage_class == "ephemeral" or core.log.is_frozen:',
        "if True:",
        "passing",
    ),
    _one(
        "expiry reported before its sync",
        "engine/write/retention.py",
        'expiry.stage(synced=topic.stage_class == "fsync")',
        "expiry.stage(synced=False)",
        "passing",
    ),
    _one(
        "what has expired reported no more once a snapshot was taken",
        "engine/values/floor_marks.py",
        "return cls(floors.cap, floors.ttl,",
        "return cls(floors.cap, 0,",
        "passing",
    ),
    _one(
        "a key known beyond its window",
        "engine/state/idempotency.py",
        "return entry if entry is not None and now_ms - entry.started_ms <= window_ms else None",
        "return entry",
    ),
    _one(
        "background syncs that rarely come",
        "store/wal/background_sync.py",
        "self._every_ns = every_ns",
        "self._every_ns = every_ns * 100_000",
    ),
    _one(
        "what a longer time to live brings back",
        "engine/write/lifecycle.py",
        "        expire(core, topic, now_ms)  # Records that the old ttl_ms has expired stay expired.\n",
        "",
        "passing",
    ),
    _one(
        "deliveries forgotten at a checkpoint",
        "engine/state/leases.py",
        "rows.append(LeaseRow(job.seq, lease_id, job.until, job.deliveries, job.node))",
        "rows.append(LeaseRow(job.seq, lease_id, job.until, 1, job.node))",
        "queues",
    ),
    _one(
        "leases not logged when they are to be kept from now on",
        "engine/write/lifecycle.py",
        "if topic.queue is not None and _keeps_leases(topic.next_config) != _keeps_leases(config):",
        "if False:",
        "queues",
    ),
    _one(
        "leases of an earlier process kept with those that begin to be logged",
        "engine/write/first_leases.py",
        "return LeasesPayload(leases.image(), forgotten=True, ",
        "return LeasesPayload(leases.image(), ",
        _FIRST_LEASES,
    ),
    _one(
        "leases that change while they begin to be logged not logged",
        "engine/write/first_leases.py",
        "    leases.is_logged = True\n",
        "",
        _FIRST_LEASES,
    ),
    _one(
        "attempts dropped that are older than those logged before them",
        "engine/state/leases.py",
        "            if is_image and self._most_attempts:\n",
        "            if False:\n",
        _FIRST_LEASES,
    ),
    _one(
        "delays of deleted jobs that end before their memory is freed",
        "engine/index/seq_times.py",
        "                chunk.is_stale = True\n",
        "",
        _SEQ_TIMES,
    ),
    _one(
        "claims answered before very many poison jobs are moved",
        "engine/queue/claim.py",
        "        if taken.is_cut:\n",
        "        if False:\n",
        _POISON,
    ),
    _one(
        "jobs forgotten that come before very many poison ones",
        "engine/state/leases.py",
        "                for job in jobs:\n                    self._enter(job)\n",
        "",
        _POISON,
    ),
    _one(
        "a failed move of very many poison jobs tried over and over",
        "engine/queue/claim.py",
        "        if error is not None:  # Others would fail, too; they are claimable.\n",
        "        if False:\n",
        _POISON,
    ),
    _one(
        "poison jobs that were passed over not claimable again",
        "engine/queue/claim.py",
        "            self._leases.put_back_all(self._stuck)\n",
        "            pass\n",
        _POISON,
    ),
    _one(
        "copies shown before they are synced",
        "engine/routers/forward.py",
        "forward.stage(synced=(fsync and seen) or bool(reserved))",
        "forward.stage(synced=bool(reserved))",
        "forwarding",
    ),
    _one(
        "a snapshot at every start",
        "store/store_start.py",
        "if has_gaps or self.power_lost or (stored is not None and (stored.rebuilt or stored.log_cut)):",
        "if found.loaded is not None:",
    ),
    _one(
        "shards in use no more copied out at every start",
        "store/store_start.py",
        "in_use_no_more = any(survey.used for",
        "in_use_no_more = any(True for",
        "tests/store/recovery/test_recovery.py",
    ),
    # --- the chain of a commit ---------------------------------------------------------------------------------------
    _one(
        "a hard link: the sync runs after a short write, too",
        "loop/files.py",
        _CHAIN,
        _HARD_CHAIN,
    ),
    Mutant(
        "a hard link, and a sync that ended well counts whatever was written",
        (
            ("loop/files.py", _CHAIN, _HARD_CHAIN),
            (
                "store/commits/primitive.py",
                "    if write_res == expected:\n",
                "    if write_res == expected or (chained and sync_res == 0):\n",
            ),
        ),
    ),
    _one(
        "a hard link in the kernel's ring",
        "uring/ring.c",
        "write->flags |= IOSQE_IO_LINK;",
        "write->flags |= IOSQE_IO_HARDLINK;",
        "tests/loop/rings/test_ring_conformance_uring.py",
    ),
    # --- log files used again ----------------------------------------------------------------------------------------
    _one(
        "a log file that is to be used again taken for one in use",
        "store/recovery/log_replay.py",
        "        if header.file_no != number:\n            return None\n",
        "",
    ),
    _one(
        "what batches of a former use knew to be synced is believed",
        "store/format/codec.c",
        "if (h->magic != BATCH_MAGIC || h->epoch != epoch) continue;",
        "if (h->magic != BATCH_MAGIC) continue;",
    ),
    Mutant(
        "batches of a former use taken for live ones: epoch, number and chain not compared",
        (
            ("store/format/codec.c", "h->magic != BATCH_MAGIC || h->epoch != s->epoch", "h->magic != BATCH_MAGIC"),
            ("store/format/codec.c", "h->batch_no != s->batch_no || h->chain != s->chain", "0"),
        ),
        hunt=f"{_STARTS}::test_batches_of_a_recycled_log_file_are_not_taken_for_what_follows_its_last_one",
    ),
    # --- seqs --------------------------------------------------------------------------------------------------------
    _one(
        "a reservation counted on that a snapshot has released",
        "engine/state/topic_numbers.py",
        "            self.reserve(self.next_seq - 1)\n            self.growing = 0\n",
        "            self.reserve(self.next_seq - 1)\n",
    ),
    _one(
        "reservations that add up in a replay",
        "engine/recovery/engine_catalog.py",
        "                self._reserved[topic_id] = max(seq, self._reserved.get(topic_id, 0))\n",
        "                self._reserved[topic_id] = seq + self._reserved.get(topic_id, 0)\n",
    ),
    _one(
        "a reservation counted on that failed",
        "engine/state/topic_numbers.py",
        "            self.reserve(0)\n            self.growing = 0\n",
        "            pass\n",
        f"{_SEQS}::test_a_reservation_that_found_no_space_is_made_again_by_the_next_write",
    ),
    _one(
        "a start whose log fails does not note it",
        "store/store_start.py",
        "        if (broke or self.log.read_only) and not self._is_frozen:\n",
        "        if False:\n",
        _RECOVERY,
    ),
    _one(
        "floors forgotten by a snapshot",
        "engine/shared/topic_snapshot.py",
        "        FloorMarks.of(topic.floors),\n",
        "        FloorMarks(),\n",
    ),
    _one(
        "a replay drops what follows a gap",
        "store/recovery/recovery.py",
        "            if len(rows.seqs):\n                self._catalog.add_rows",
        "            if len(rows.seqs):\n"
        "                rows = select(rows, rows.seqs - rows.seqs[0] == np.arange(len(rows.seqs)))\n"
        "            if len(rows.seqs):\n                self._catalog.add_rows",
    ),
    _one(
        "a graceful stop syncs nothing",
        "store/store.py",
        "            await self.log.drain()\n            if checkpoint and not self.log.read_only:\n",
        "            if False:\n",
    ),
    _one(
        "the session noted before the gap that a power cut left",
        "store/store_start.py",
        "            await self._or_with_reserve(lambda: self._settle(found, checkpointer, has_gaps=has_gaps))\n"
        "            await self._or_with_reserve("
        "lambda: write_session(loop, directory, checkpointer.snapshot_number))\n",
        "            await self._or_with_reserve("
        "lambda: write_session(loop, directory, checkpointer.snapshot_number))\n"
        "            await self._or_with_reserve(lambda: self._settle(found, checkpointer, has_gaps=has_gaps))\n",
        f"{_STARTS}::test_a_start_after_a_power_cut_may_be_killed_anywhere_and_no_seq_comes_again",
    ),
    _one(
        "a sync of the file before taken for one of all that is written",
        "store/wal/background_sync.py",
        "fd, upto = sealed.fd, sealed.last_batch_no",
        "fd, upto = sealed.fd, batches.written",
        "tests/store/wal/test_shard.py",
    ),
    # --- deletes -----------------------------------------------------------------------------------------------------
    _one(
        "records deleted while they are copied not flagged",
        "store/checkpoint/copy_context.py",
        "if len(died):",
        "if False:",
        f"{_DELETES}::test_a_record_deleted_while_a_checkpoint_copies_it_stays_deleted",
    ),
    _one(
        "flags forgotten by a checkpoint that failed",
        "store/checkpoint/checkpoint_steps.py",
        "        await flagging.flag(self._unflagged)\n        self._unflagged.clear()",
        "        unflagged, self._unflagged = self._unflagged, []\n        await flagging.flag(unflagged)",
        f"{_DELETES}::test_flags_that_found_no_descriptor_are_set_by_the_next_checkpoint",
    ),
    _one(
        "frames in segments not flagged",
        "store/checkpoint/delete_flags.py",
        "                await self._flag_frames(path, offsets, lengths, compressed=segment.codec != CODEC_PLAIN)\n",
        "",
        f"{_DELETES}::test_flags_that_found_no_descriptor_are_set_by_the_next_checkpoint",
    ),
    _one(
        "flags before a snapshot has the floors",
        "store/checkpoint/checkpoint_steps.py",
        "        await self._snapshots.take(clean=False, flagging=self._manifest.paths_of(about))\n        files =",
        "        files =",
        f"{_DELETES}::test_what_a_cap_evicted_stays_gone_when_a_crash_follows_the_flags_of_a_checkpoint",
    ),
    _one(
        "flags that a kill cut short not synced by the next start",
        "store/recovery/recovery.py",
        "    await _sync_flags(files, tiers, manifest, flagging)\n",
        "",
        f"{_DELETES}::test_a_delete_stays_done_whose_flags_a_killed_checkpoint_left_in_the_page_cache",
    ),
    _one(
        "runs read again that were merged elsewhere",
        "store/segments/pack.py",
        "        wanted[list(runs)] = True\n",
        "        wanted[:] = True\n",
        f"{_DELETES}::test_a_run_that_was_merged_into_a_segment_is_not_read_again",
    ),
    _one(
        "a delete that leaves what is under way",
        "engine/write/delete.py",
        "RecordDeletion(core, topic, topic.next_seq - 1,",
        "RecordDeletion(core, topic, topic.head,",
        f"{_DELETES}::test_a_delete_takes_what_was_written_before_it_though_not_yet_answered",
    ),
    _one(
        "records of a time in another class shown by an ephemeral topic",
        "engine/recovery/engine_catalog.py",
        "                index.kill_through(topic.head)\n",
        "",
        "passing",
    ),
    _one(
        "a chain that a signal interrupted taken for a failure",
        "store/commits/primitive.py",
        "if write_res in NOTHING_DONE or",
        "if",
    ),
    # --- files -------------------------------------------------------------------------------------------------------
    _one(
        "a checkpoint after one that failed syncs what it wrote itself only",
        "store/checkpoint/checkpoint_steps.py",
        "unsynced=self._unsynced,",
        "unsynced=Unsynced({}, {}),",
    ),
    _one(
        "the directories of copies in the cold directory not synced",
        "store/checkpoint/tiering.py",
        "            await self._sync_directories(copied)",
        "            pass",
        _CRASHES,
    ),
    _one(
        "segments given up before a snapshot has their copies in the cold directory",
        "store/checkpoint/checkpoint_steps.py",
        "        codecs = self._tiering.mark(moved)\n",
        "        codecs = self._tiering.mark(moved)\n        self._tiering.drop_hot(moved)\n",
        _CRASHES,
    ),
    _one(
        "segments removed before a snapshot lists the one written anew",
        "store/checkpoint/checkpoint_steps.py",
        "        await evacuation.sync()\n        await self._snapshots.take(clean=False)\n        self.remove()\n",
        "        await evacuation.sync()\n        self.remove()\n        await self._snapshots.take(clean=False)\n",
        _CRASHES,
    ),
    _one(
        "the name of a segment written anew not synced",
        "store/checkpoint/checkpoint_steps.py",
        "        await evacuation.sync()\n        await self._snapshots.take(clean=False)\n",
        "        await self._snapshots.take(clean=False)\n",
        _CRASHES,
    ),
    _one(
        "a delete lost in a compressed segment",
        "store/checkpoint/delete_flags.py",
        "                await writes.put(_FLAG, place)\n",
        "                if not compressed:\n                    await writes.put(_FLAG, place)\n",
        "tests/store/checkpoint/test_compressed_segments.py",
    ),
    _one(
        "the index of a compressed segment not flagged",
        "store/checkpoint/delete_flags.py",
        "                if segment.sealed:\n",
        "                if segment.sealed and segment.codec == CODEC_PLAIN:\n",
        "tests/store/checkpoint/test_tiering.py",
    ),
    _one(
        "a compressed copy that a snapshot lists as a plain one",
        "store/checkpoint/tiering.py",
        "segment.codec = CODEC_ZSTD if self.compresses else segment.codec",
        "segment.codec = segment.codec",
        _MOVES,
    ),
    _one(
        "a compressed copy not synced",
        "store/checkpoint/tiering.py",
        "table, header.table_at)\n                await files.fsync(write_fd)",
        "table, header.table_at)",
        _MOVES,
    ),
    _one(
        "a delete flag that two records of a compressed segment share",
        "store/format/compressed_segment.py",
        "    return HEADER_BYTES + offset // FRAME_MIN_BYTES\n",
        "    return HEADER_BYTES + offset // (2 * FRAME_MIN_BYTES)\n",
        "tests/store/checkpoint/test_compressed_segments.py",
    ),
    _one(
        "records of the log read again that a checkpoint has copied",
        "store/recovery/recovery.py",
        "            if upto and int(rows.seqs[0]) <= upto:\n                rows = select(rows, rows.seqs > upto)\n",
        "",
        _CRASHES,
    ),
    Mutant(
        "damage in the middle of the log taken for its end",
        (
            (
                "store/recovery/log_replay.py",
                "                if known > self.last_batch_no:\n"
                "                    raise _torn_middle(file, offset, self.last_batch_no + 1, known)\n"
                "                if size:",
                "                if size:",
            ),
            (
                "store/recovery/log_replay.py",
                "            if known > self.last_batch_no:\n"
                "                raise _torn_middle(file, offset, self.last_batch_no + 1, known)\n"
                "        self.lost",
                "        self.lost",
            ),
        ),
        hunt="tests/store/repair/test_damage.py",
    ),
    # --- others ------------------------------------------------------------------------------------------------------
    _one(
        "what runs after the lane's answers left to the next pass, which may not come",
        "http/lane/lane_answers.py",
        "            self.service.again()  # later bytes run now, and the log has had its turn\n",
        "            pass\n",
        f"{_WAITING}::test_a_write_that_came_behind_one_of_the_lane_is_committed_without_another_reason_to_wake_up",
    ),
    _one(
        "readers that a commit at the end of a pass has woken left to the next pass",
        "engine/engine.py",
        "            core.loop.again()\n",
        "            pass\n",
        f"{_IN_PLACE}::test_a_reader_that_waits_gets_what_a_server_commits_in_place_in_the_same_pass",
    ),
    _one(
        "woken reads that take no turns",
        "engine/delivery/cohort.py",
        "            if self._cohorts.reads.turns.is_free:\n",
        "            if True:\n",
        "tests/engine/delivery/test_cohort.py",
    ),
    _one(
        "a part of another's read taken although records were deleted meanwhile",
        "engine/read/shared_reads.py",
        "topic.life is not Life.GONE and state[1:] == wanted.state[1:]",
        "topic.life is not Life.GONE",
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "a read of the disk for each of those who wait for the same records",
        "engine/read/shared_reads.py",
        "            return self._coming.get(key)  # if it waits for the disk\n",
        "            return None\n",
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "a read that uses up no more than the bytes of its pass",
        "engine/shared/read_turns.py",
        "max(min(self._left, 0), -_DEBT_PASSES * self._budget) + self._budget",
        "self._budget",
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "reads that begin while the memory for clients is used up",
        "engine/shared/read_turns.py",
        "        if is_short:\n",
        "        if False:\n",
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "long polls of a deleted topic answered in one pass",
        "engine/read/diff.py",
        'a topic that is gone finds that."""\n        self.look_again()\n',
        'a topic that is gone finds that."""\n        self._unpark()\n        self._look_among_others()\n',
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "streams of a deleted topic ended in one pass",
        "engine/delivery/cohort.py",
        "            if turns.left <= 0:\n                turns.take(self._end_some)\n",
        "            if False:\n                turns.take(self._end_some)\n",
        "tests/engine/delivery/test_cohort.py",
    ),
    _one(
        "a long read rendered in one pass",
        "engine/read/read_pass.py",
        "fitting(rows.lengths, _LONG_BYTES)",
        "len(rows.seqs)",
        "tests/engine/read/test_read_turns.py",
    ),
    _one(
        "woken claims that take no turns",
        "engine/queue/claim_wait.py",
        "            self._claims.core.turns.take(self._on_turn)\n",
        "            self._on_turn()\n",
        "tests/engine/queue/test_claim_wait.py",
    ),
    _one(
        "writes of a pass to one topic that count as one callback of their commit",
        "engine/write/append.py",
        "        if not len(self.writes) % WRITES_A_PART:\n",
        "        if False:\n",
        "tests/engine/write/test_append.py",
    ),
    _one(
        "answers to the writes of a commit that take no turns",
        "http/handlers/record_endpoints.py",
        "            service.answer_turns.answer(partial(answer, result))\n",
        "            answer(result)\n",
        "tests/http/plan/test_answer_turns.py",
    ),
    _one(
        "deliveries that do not wait for the turn of an ack",
        "ws/session.py",
        "            turns = host.ack_turns\n            if turns.is_free:\n",
        "            turns = host.ack_turns\n            if True:\n",
        "tests/ws/test_session.py",
    ),
    _one(
        "all groups of a commit answered by the lane in one pass",
        "http/lane/lane_answers.py",
        "        while groups < min(len(finished), GROUPS_A_PASS) and left > 0:\n",
        "        while groups < len(finished) and left > 0:\n",
        "tests/http/plan/test_answer_turns.py",
    ),
    _one(
        "all requests of a commit answered by the lane in one pass",
        "http/lane/lane_answers.py",
        "        left = REQUESTS_A_PASS\n",
        "        left = 1 << 62\n",
        "tests/http/plan/test_answer_turns.py",
    ),
    _one(
        "writes of a pass to many topics that count as one callback of their commit",
        "engine/write/plain_appends.py",
        "        parts = 1 + len(topics) // _TOPICS_A_PART\n",
        "        parts = 1\n",
        "tests/engine/write/test_plain_appends.py",
    ),
    _one(
        "what callbacks of a commit stage left to the next pass, which may not come",
        "store/wal/shard.py",
        "            if not (state.is_only and self.staging.is_empty):\n",
        "            if not state.is_only:\n",
        f"{_IN_PLACE}::test_a_pass_with_a_commit_in_place_ends_once_unless_its_callbacks_stage_more",
    ),
    _one(
        "the end of a pass left out although more than one settled receive came",
        "loop/loop.py",
        "is_settled = self._traffic.deliver() and not self._has_completed",
        "is_settled = self._traffic.deliver()",
        "tests/loop/test_loop.py",
    ),
    _one(
        "the end of a pass left out after reads although writes came, too",
        "http/lane/lane.py",
        "self.answers.send(*reads) or missed or groups:",
        "self.answers.send(*reads) or missed:",
        "tests/server/test_lane.py::test_reads_of_several_clients_leave_out_the_end_of_their_pass_unless_something_else"
        "_was_received",
    ),
    _one(
        "the end of a pass left out although one of several handlers left work",
        "loop/traffic.py",
        "is_settled = 0 < inputs == settled and",
        "is_settled = 0 < settled and",
        "tests/loop/test_loop.py",
    ),
    _one(
        "readers that wait not notified of a write that came by itself",
        "http/lane/single.py",
        "        if not engine.settle_lone():\n            return UNSETTLED\n",
        "",
        "tests/server/test_lane.py::test_a_poll_that_waits_gets_the_write_of_a_client_alone_in_the_same_pass",
    ),
    _one(
        "only readers that stay notified of a write that came by itself",
        "engine/scheduling/scheduler.py",
        "        if deliver(next(iter(awake))):\n",
        "        if deliver(next(iter(awake))) or True:\n",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a single receive whose work is for the hooks makes a pass without them",
        "loop/loop.py",
        "            self._run_hooks()\n            stats.pass_end.add(now() - received_ns)\n",
        "            pass\n",
        "tests/loop/test_loop.py",
    ),
    _one(
        "the cap of a key ignored for a request by itself",
        "http/lane/single.py",
        "if principal is not None and NOTHING_COMES.is_full(principal):",
        "if False:",
        "tests/server/test_lane.py::test_a_key_at_its_cap_is_refused_to_a_client_alone_too",
    )._replace(places=2),
    _one(
        "an unknown key of a strict write ignored in the lane",
        "engine/json/write_scan.c",
        "    if (request->flags & TP_STRICT && w->unknown.kind) return -1;\n",
        "",
        f"{_LANE}::test_strict_requests_are_plain_where_all_their_keys_are_known",
    ),
    _one(
        "a strict answer of the lane without the line that says so",
        "http/lane/scan.c",
        "put_head_end(p, s, body, requests[i].flags & TP_STRICT)",
        "put_head_end(p, s, body, 0)",
        f"{_LANE}::test_strict_requests_are_plain_where_all_their_keys_are_known",
    ),
    _one(
        "a synced write by itself although another client has sent of late",
        "http/lane/single.py",
        'if topic.stage_class == "fsync" and not service.has_one_sender():',
        "if False:",
        f"{_LANE}::test_a_write_that_needs_no_sync_is_taken_by_itself_beside_a_poll_that_asks_again_after_each",
    ),
    _one(
        "the gate ignored for a request by itself",
        "http/lane/single.py",
        "if service.gate is not None or service.closing:",
        "if service.closing:",
        "tests/server/test_lane.py::test_a_gate_that_is_closed_is_closed_to_a_client_alone_too",
    ),
    _one(
        "a shutdown ignored for a request by itself",
        "http/lane/single.py",
        "if service.gate is not None or service.closing:",
        "if service.gate is not None:",
        "tests/server/test_lane.py::test_a_gate_that_is_closed_is_closed_to_a_client_alone_too",
    ),
    _one(
        "a lone write answered before the commit's verdict",
        "engine/write/appender.py",
        "        if written is None:\n            return None\n",
        "        if written is None:\n"
        "            if on_committed is not None:\n"
        "                on_committed(make_tuple(AppendResult, (first, last, last, count, False, False, 0, 0)))\n"
        "            return None\n",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a lone write before operations of its topic that are not applied",
        "engine/write/appender.py",
        "        if topic.pending:\n            return None\n        if on_committed is None",
        "        if on_committed is None",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a lone write beside a batch in flight",
        "store/wal/in_place_commits.py",
        "        if self._commitment.is_busy or not staging.is_empty",
        "        if not staging.is_empty",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a batch sent before all callbacks of the one before it ran",
        "store/wal/commitment.py",
        "return self.batch is not None or bool(self.owed)",
        "return self.batch is not None",
        "tests/store/wal/test_shard.py",
    ),
    _one(
        "what is staged between the callbacks of a failure committed",
        "store/wal/shard.py",
        "        if last.error is not None:  # what was staged since",
        "        if False:  # what was staged since",
        "tests/store/wal/test_shard.py",
    ),
    _one(
        "a topic half undone between the callbacks of a failure",
        "engine/state/staged_operations.py",
        "        commit = operation.commit or failed\n",
        "        commit = operation.commit\n",
        "tests/engine/write/test_full_disk.py",
    ),
    _one(
        "writes of a pass to many topics refused in one pass",
        "http/plan/answer_turns.py",
        "        while self.left > 0:\n",
        "        while True:\n",
        "tests/http/plan/test_answer_turns.py",
    ),
    _one(
        "a lone write before a batch that is staged",
        "store/wal/in_place_commits.py",
        "        if self._commitment.is_busy or not staging.is_empty or",
        "        if self._commitment.is_busy or",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a lone write not published",
        "engine/write/append.py",
        "    topic.publish_new(first + count - 1, ts)\n",
        "",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a lone write past the reserved seqs",
        "engine/write/appender.py",
        "        if last > topic.ample and (topic.lacks(count) or topic.is_short(first)):\n            return None\n",
        "",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "the end of the log left where it was by a lone write whose answer failed",
        "engine/write/appender.py",
        "    finally:  # the records are in the log, whatever became of the answer\n",
        "    except ZeroDivisionError:\n        pass\n    else:\n",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a committed write whose publication failed does not end all writes",
        "engine/write/appender.py",
        "            core.log.latch(",
        "            str(",
        "tests/engine/write/test_append_lone.py",
    ),
    _one(
        "a streak that continues after other work",
        "engine/write/write_streak.py",
        " or core.loop.interruptions != self._interruptions:",
        ":",
        "tests/engine/write/test_write_streak.py",
    ),
    _one(
        "a streak that continues after lone writes of other callers",
        "engine/write/appender.py",
        "            core.streak.end()\n",
        "            pass\n",
        "tests/engine/write/test_write_streak.py",
    ),
    _one(
        "a streak that continues after two receives of a pass",
        "loop/loop.py",
        "if has_work or len(used) > 1:",
        "if has_work:",
        "tests/loop/test_loop.py",
    ),
    _one(
        "a streak that continues after the end of a pass",
        "loop/loop.py",
        "+= 1\n            self._run_hooks()\n            stats.pass_end.add(now() - ran_ns)",
        "+= 0\n            self._run_hooks()\n            stats.pass_end.add(now() - ran_ns)",
        "tests/loop/test_loop.py",
    ),
    _one(
        "a write of a streak of which no watcher is notified",
        "http/lane/single.py",
        "            return SETTLED if engine.settle_lone() else UNSETTLED\n",
        "            return SETTLED\n",
        "tests/server/test_lane.py",
    ),
    _one(
        "a publish of a streak of which no watcher is notified",
        "ws/session.py",
        "                return engine.settle_lone()\n",
        "                return True\n",
        _PUBLISHES,
    ),
    _one(
        "a publish that left the end of its pass out although readers wait",
        "ws/session.py",
        "        if engine.settle_lone():\n            self._settled = request.topic\n",
        "        self._settled = request.topic\n",
        _PUBLISHES,
    ),
    _one(
        "the budget of frames not renewed by a pass without its end",
        "ws/session.py",
        "        self._turns.next_pass()  # as",
        "        # as",
        "tests/ws/test_session.py",
    ),
    _one(
        "a streak of publishes that another session continues",
        "ws/session.py",
        "if lone is not None and lone.owner is self:",
        "if lone is not None:",
        _PUBLISHES,
    ),
    _one(
        "a publish of a streak answered before it is committed",
        "ws/lone_publishes.py",
        "        self._started_ns = self._now_ns()\n",
        "        self._started_ns = self._now_ns()\n"
        "        self._answer(AppendResult(0, 0, 0, 1, False, False, 0, 0))\n",
        _PUBLISHES,
    ),
    _one(
        "a publish of a streak not synced",
        "ws/lone_publishes.py",
        "        self._streak.begin(topic)\n",
        "        topic.stage_class, its_class = 'disk', topic.stage_class\n"
        "        self._streak.begin(topic)\n"
        "        topic.stage_class = its_class\n",
    ),
    _one(
        "a publish of a streak to a topic of another name",
        "engine/json/write_scan.c",
        "memcmp(text + topic->off, publish->topic, topic->len)",
        "0",
        _PUBLISHES,
    ),
    _one(
        "a publish of a streak while its client reads nothing",
        "ws/session.py",
        "self._closing or self._transport.over_high_water or engine.refuses_writes",
        "self._closing or engine.refuses_writes",
        "tests/ws/test_session.py",
    ),
    _one(
        "a publish of a streak while writes are refused",
        "ws/session.py",
        "self._closing or self._transport.over_high_water or engine.refuses_writes",
        "self._closing or self._transport.over_high_water",
        "tests/ws/test_session.py",
    ),
    _one(
        "quick appends that the next call does not find",
        "embedded/driving/driver.py",
        "        if self.quick.is_open:\n            self._end_quick()\n        return True",
        "        return True",
        _QUICK,
    ),
    _one(
        "quick appends that overtake what was posted",
        "embedded/driving/driver.py",
        "queues = (self._inbox, self._asleep, self._line,",
        "queues = (self._asleep, self._line,",
        _QUICK,
    ),
    _one(
        "quick appends beside work that is due",
        "embedded/driving/driver.py",
        "        until_ns = NEVER if wait_ns is None else",
        "        until_ns = NEVER if wait_ns else",
        _QUICK,
    ),
    _one(
        "quick appends past the reserved seqs",
        "engine/write/write_streak.py",
        "first, last = topic.next_seq, topic.ample",
        "first, last = topic.next_seq, (1 << 64) - 1",
        _QUICK,
    ),
    _one(
        "quick appends of bytes before the directory has their format",
        "engine/write/write_streak.py",
        "takes_bytes = self._format_wait.has_bytes",
        "takes_bytes = True",
        _QUICK,
    ),
    _one(
        "quick appends that the bound of unsynced bytes leaves out",
        "embedded/appends/offers.py",
        "self._promised + self._driver.quick.bytes",
        "self._promised",
        _QUICK,
    ),
    _one(
        "quick appends of a forked child",
        "embedded/driving/driver.py",
        "        self.quick.forbid()\n",
        "",
        _QUICK,
    ),
    _one(
        "a quick append to the topic of another one",
        "store/format/python_objects.c",
        "    if (!PyUnicode_CheckExact(topic) || (topic != name && PyUnicode_Compare(topic, name))) return 0;\n",
        "    if (!PyUnicode_CheckExact(topic) || name == NULL) return 0;\n",
        _QUICK,
    ),
    _one(
        "a quick append counted before it is whole",
        "store/format/python_objects.c",
        "    return written == (int64_t)s->expected;",
        "    return written > 0;",
        _QUICK,
    ),
    _one(
        "a quick append repeated after its write failed",
        "engine/write/write_streak.py",
        "            log.take_back(*failed)\n",
        "            pass\n",
        _QUICK,
    ),
    _one(
        "a streak past the reserved seqs",
        "engine/write/write_streak.py",
        "topic.next_seq, topic.ample, topic.last_ts",
        "topic.next_seq, 1 << 62, topic.last_ts",
        "tests/engine/write/test_write_streak.py",
    ),
    _one(
        "a streak past what is staged",
        "store/wal/in_place_commits.py",
        "following is None or self._latch.closed or commitment.is_busy or not staging.is_empty:",
        "following is None or self._latch.closed or commitment.is_busy:",
        "tests/engine/write/test_write_streak.py",
    ),
    _one(
        "a streak that continues after a slow write",
        "store/wal/in_place_commits.py",
        "            limit.on_slow(sync_running=self._sync.running)\n            self._next = None\n",
        "            limit.on_slow(sync_running=self._sync.running)\n",
        "tests/engine/write/test_write_streak.py",
    ),
    _one(
        "a batch of a streak not chained to the one before",
        "store/format/codec.c",
        "next->checksum = next->chain = sum;",
        "next->checksum = sum;",
        "tests/store/commits/test_next_batch.py",
    ),
    _one(
        "a shared send from a connection that has one in flight",
        "loop/connection_table.c",
        " && !conn->length && length <= conn->most",
        " && length <= conn->most",
        "tests/loop/test_connection_table.py",
    ),
    _one(
        "a short send of a table taken for a whole one",
        "loop/connection_table.c",
        "in_table && (uint32_t)res[i] == conn->length;",
        "in_table && res[i] > 0;",
        "tests/loop/test_connection_table.py",
    ),
    _one(
        "a watcher credited with a burst that its cohort sent before it joined",
        "engine/delivery/subscription.py",
        "if cohort is None or cohort.sent is self.joined_after else",
        "if cohort is None else",
        _AUDIENCE,
    ),
    _one(
        "a watcher that has paused is sent to with the others",
        "engine/delivery/feed.py",
        "        if conn is not None:\n            conn.stop_sharing()\n",
        "",
        _AUDIENCE,
    ),
    _one(
        "the bytes of one protocol sent to the watchers of another",
        "engine/delivery/audience.py",
        "[AudienceRow(audience, some) for audience, some in",
        "[AudienceRow(next(iter(by_audience)), some) for _, some in",
        _AUDIENCE,
    ),
    _one(
        "the session of a watcher does not know what a shared send has sent",
        "http/streams/watch_stream.py",
        "if self._cursors[only.name] != cursor:",
        "if False:",
        "tests/server/test_shared_sends.py",
    ),
    _one(
        "a topic that is made later not taken in by a watch of its prefix",
        "engine/write/lifecycle.py",
        "if (self.core.awaited or self.core.prefix_waits) and",
        "if self.core.awaited and",
        _PREFIXES,
    ),
    _one(
        "a topic named beside a prefix begun at its first record by a WebSocket",
        "ws/subscriptions.py",
        "            self._feed.subscribe(name, query, beginning.from_seq)\n",
        "            self._feed.subscribe(name, query, 0 if command.prefixes else beginning.from_seq)\n",
        "watchers",
    ),
    _one(
        "the staging area of producers taken in by a watch of all names",
        "engine/write/lifecycle.py",
        " and self.topic.name != STAGING:",
        ":",
        _PREFIXES,
    ),
    _one(
        "a topic without a place left out without a word",
        "engine/delivery/prefix_watch.py",
        "if not self._feed.sink.deliver_left_out(self._left_out, most):",
        "if False:",
        _PREFIXES,
    ),
    _one(
        "a topic of another key taken in by a watch of its prefix",
        "engine/delivery/prefix_watch.py",
        "starts_of(prefixes, self._within)",
        "starts_of(prefixes, ())",
        _PREFIXES,
    ),
    _one(
        "the place of a topic that has ended stays empty",
        "engine/delivery/prefix_watch.py",
        "            self._refills = True\n",
        "",
        _PREFIXES,
    ),
    _one(
        "a topic created again continued where a watch of its prefix was in the first",
        "engine/delivery/feed.py",
        "if topic is not None and prefixes is not None and subscription.name in prefixes:",
        "if False:",
        _PREFIXES,
    ),
    _one(
        "a wait for a prefix answered with topics of other keys",
        "http/handlers/wait_endpoint.py",
        "wait(known, wait_ms, done, prefixes, call.principal.prefixes)",
        "wait(known, wait_ms, done, prefixes)",
        _PREFIXES,
    ),
    _one(
        "readers that wait not notified of a write",
        "engine/write/append.py",
        "    wake(core, topic)\n",
        "    pass\n",
    ),
    _one(
        "an append takes rows that are in another batch of the log",
        "engine/write/appender.py",
        " or filling.batch_number != core.log.batch_number(topic.id)",
        "",
        "tests/engine/write/test_large_appends.py",
    ),
    _one(
        "the creation of a topic left out of the batch of a large write",
        "store/wal/staging.py",
        "        frames.add_controls(memoryview(filling.memory)[BATCH_HEADER_BYTES : filling.used], filling.frames)\n",
        "",
        "tests/engine/write/test_large_appends.py",
    ),
    _one(
        "a dead letter's copy not synced",
        "engine/write/appender.py",
        "            now_ms = self._core.clock.now_ms()\n"
        "            self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=True)",
        "            now_ms = self._core.clock.now_ms()\n"
        "            self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done)",
        "tests/contract/queues/test_queue_durability.py",
    ),
    _one(
        "log files that a checkpoint had no space for left out of the replay",
        "store/checkpoint/files_to_empty.py",
        "    cut.update((shard, ReplayStart(number)) for shard, number in first.items())\n",
        "    pass\n",
        f"{_FULL_DISKS}::test_a_checkpoint_that_has_space_for_few_log_files_leaves_the_others_to_the_replay",
    ),
    _one(
        "what a failed checkpoint wrote of a segment counted",
        "store/checkpoint/segment_copy.py",
        "self._segment = copy.copy(tail)",
        "self._segment = tail",
        f"{_CHECKPOINTS}::test_what_a_checkpoint_wrote_of_a_segment_before_space_ran_out_is_written_over_by_the_next",
    ),
    # --- space -------------------------------------------------------------------------------------------------------
    _one(
        "a disk that has space again taken for a full one",
        "store/disk/disk_space.py",
        "            self._set_full(False)\n",
        "            pass\n",
        "records",
    ),
    _one(
        "appends resumed before there is a reserve again",
        "store/disk/disk_space.py",
        "        if not self.has_reserve:\n            await self._make_reserve()\n",
        "        self.has_reserve = True\n",
        "tests/store/disk/test_disk_space.py",
    ),
    _one(
        "a tail that there is no space to write again not synced where it is",
        "store/recovery/log_replay.py",
        "                await in_place(self._files.fsync(stored.fd))\n",
        "                pass\n",
        f"{_FULL_DISKS}::test_a_start_without_space_for_its_unsynced_tail_syncs_that_where_it_lies",
    ),
    _one(
        "both copies of a snapshot kept where there is no space for the next",
        "store/segments/snapshot_files.py",
        "not await _give_up_copies(files, directory)",
        "True",
        f"{_FULL_DISKS}::test_deletes_on_a_full_disk_leave_space_for_the_snapshot_that_frees_theirs",
    ),
    # --- classes -----------------------------------------------------------------------------------------------------
    _one(
        "seqs of a time in class ephemeral given out again",
        "engine/recovery/engine_catalog.py",
        "        topic.found(change.head)\n",
        "",
        f"{_SEQS}::test_seqs_of_a_time_in_class_ephemeral_are_not_given_out_again",
    ),
    _one(
        "what left while a topic was ephemeral not stated when its class changes",
        "engine/write/lifecycle.py",
        '            if config.durability != "ephemeral":\n',
        "            if False:\n",
        "passing",
    ),
    _one(
        "what went after it was to be stated not stated when a class changes in steps",
        "engine/write/gone_records.py",
        "            self._through = 0\n        return",
        "            pass\n        return",
        _GONE,
    ),
    _one(
        "what expired while a topic was ephemeral stated as deleted",
        "engine/write/gone_records.py",
        "            part.holes += holes\n",
        "            pass\n",
        _GONE,
    ),
    # --- incarnations ------------------------------------------------------------------------------------------------
    _one(
        "an incarnation kept by a start that may give seqs out again",
        "engine/recovery/engine_catalog.py",
        "if rebuilt or self._skipped_seqs or incarnation.ends_with_process(topic.config):",
        "if rebuilt or self._skipped_seqs:",
    ),
    _one(
        "the incarnation that a start has drawn forgotten by a change of class",
        "engine/recovery/engine_catalog.py",
        "        topic.incarnation = change.incarnation or topic.incarnation\n",
        "",
    ),
    _one(
        "incarnations lost at a checkpoint",
        "engine/shared/topic_snapshot.py",
        'topic.incarnation if now_ms is not None else "",',
        '"",',
    ),
    # --- waits -------------------------------------------------------------------------------------------------------
    _one(
        "the creation of a topic not reported to its waiters",
        "engine/write/lifecycle.py",
        "            notify_made(self.core, self.topic)\n",
        "            pass\n",
    ),
    _one(
        "the end of a topic not reported to its waiters",
        "engine/read/wait.py",
        "            self._wait.answer_soon()\n\n"
        "    def on_topic_gone(self) -> None:\n        self._wait.answer_soon()\n",
        "            self._wait.answer_soon()\n\n    def on_topic_gone(self) -> None:\n        pass\n",
    ),
    # --- checkpoints that are asked for ------------------------------------------------------------------------------
    _one(
        "a request for a checkpoint answered by the one that runs",
        "store/checkpoint/requested_checkpoints.py",
        "if self._runs and 0 < wished <= self._begun else",
        "if self._runs else",
    ),
    _one(
        "a checkpoint that was asked for answered before its flags are set",
        "store/checkpoint/checkpointer.py",
        "        await self.steps.flag_deleted()\n        await self.steps.drop()\n",
        "        on_shown(True)\n        await self.steps.flag_deleted()\n        await self.steps.drop()\n",
    ),
    _one(
        "records that a checkpoint had no space for not reported to its callers",
        "store/checkpoint/checkpointer.py",
        "        on_shown(is_whole)\n",
        "        on_shown(True)\n",
    ),
    # --- reads from a time -------------------------------------------------------------------------------------------
    _one(
        "a read from a time that begins after the records of that very time",
        "engine/index/index.py",
        "        row = int(np.searchsorted(chunk.ts[: chunk.count], np.uint64(ts_ms)))\n        return",
        "        row = int(np.searchsorted(chunk.ts[: chunk.count], np.uint64(ts_ms), 'right'))\n        return",
    ),
    # --- routers -----------------------------------------------------------------------------------------------------
    _one(
        "a log closed before its routers are at their end",
        "engine/stored_engine.py",
        "        self.engine.end_routers(lambda: ended.set_result(None))\n        await ended\n",
        "",
        "tests/sim/whole/test_rebuilt.py",
    ),
    _one(
        "hops lost at a checkpoint",
        "engine/recovery/engine_catalog.py",
        "        if image.hops:",
        "        if False:",
        f"{_FORWARDED}::test_hops_outlive_a_checkpoint_while_a_router_is_blocked",
    ),
    _one(
        "frames that a router keeps not synced",
        "engine/routers/kept_frames.py",
        "stage(synced=True)",
        "stage(synced=False)",
        "tests/sim/whole/scenarios/test_routed_jobs.py"
        "::test_jobs_acked_while_their_router_was_blocked_are_forwarded_after_a_power_cut",
    ),
    _one(
        "a copy taken by a checkpoint without the direct writes before it",
        "store/checkpoint/evacuation.py",
        "        from_files = self._log_files()\n",
        "",
        f"{_FORWARDED}::test_a_direct_write_goes_with_the_copy_behind_it_though_its_original_lies_in_an_older_file",
    ),
    _one(
        "routers made and deleted without a sync",
        "engine/routers/router_manager.py",
        ".stage(synced=True)",
        ".stage(synced=False)",
        "forwarding",
    )._replace(places=4),
    _one(
        "a write that carries a step of which the log has nothing",
        "store/wal/in_place_commits.py",
        "            written = self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)\n        finally:",
        "            filling.clear()\n"
        "            written = self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)\n        finally:",
        _CARRIED,
    ),
    _one(
        "a carried step staged for a batch of its own, which may be lost or come by itself",
        "store/wal/in_place_commits.py",
        "            written = self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)\n        finally:",
        "            staging.filling = staging._empty_batch()\n"
        "            written = self._write_lone(topic_id, first_seq, ts_ms, rows, node, fsync=fsync)\n"
        "            staging.filling, filling = filling, staging.filling\n        finally:",
        _CARRIED,
    ),
    _one(
        "a carried step whose position is above its copies",
        "engine/routers/carried_step.py",
        "ForwardPayload(router.id, upto, router",
        "ForwardPayload(router.id, upto + 1, router",
        _CARRIED,
    ),
    _one(
        "a router left where it was by a carried step",
        "engine/routers/carried_step.py",
        "        router.position = self._upto\n",
        "",
        _CARRIED,
    ),
    _one(
        "a step carried past records that wait for their own",
        "engine/routers/carried_step.py",
        "        and router.position == source.head\n",
        "",
        _CARRIED,
    ),
    _one(
        "a carried step between a write to the destination and its commit",
        "engine/routers/carried_step.py",
        "        and not dest.pending\n",
        "",
        _CARRIED,
    ),
    _one(
        "a reader not woken by a carried step",
        "engine/routers/carried_step.py",
        "        notify(core, dest)\n",
        "",
        _CARRIED,
    ),
    _one(
        "carried copies that count as synced at once",
        "engine/routers/carried_step.py",
        "        publish_lone(core, dest, count, self._size, placed, self._tags, ts, commit, base)\n",
        "        commit = commit._replace(unsynced=None)\n"
        "        publish_lone(core, dest, count, self._size, placed, self._tags, ts, commit, base)\n",
        _CARRIED,
    ),
    _one(
        "carried copies with seqs that are not reserved",
        "engine/routers/carried_step.py",
        "        and (last <= dest.ample or not (dest.lacks(count) or dest.is_short(dest.next_seq)))\n",
        "",
        _CARRIED,
    ),
    _one(
        "a copy of class `fsync` carried by a write that is not synced",
        "engine/routers/carried_step.py",
        '        and (dest.stage_class != "fsync" or source.stage_class == "fsync")\n',
        "",
        _CARRIED,
    ),
    _one(
        "a carried step in another batch than its write",
        "engine/routers/carried_step.py",
        " or append.batch_number != core.log.batch_number(source.id)",
        "",
        _CARRIED,
    ),
    _one(
        "a step carried past a delete in its source",
        "engine/routers/carried_step.py",
        "if len(source.pending) == 1 and",
        "if source.pending and",
        _CARRIED,
    ),
    _one(
        "the damaged frame of a copy shown by a plain read",
        "store/format/frames.h",
        "f->type != TYPE_RECORD || !frame_is_sound(p, length)) return 0;",
        "f->type != TYPE_RECORD) return 0;",
        "tests/engine/read/test_plain_reads.py",
    ),
    _one(
        "what the destination holds already forwarded again",
        "engine/routers/forward_steps.py",
        "            if (there := router.evidence.get(seq)) is not None and index",
        "            if False and (there := router.evidence.get(seq)) is not None and index",
        "tests/contract/routers/test_router_crashes.py",
    ),
    _one(
        "rows that share a frame left where they were by a checkpoint on a full disk",
        "engine/recovery/engine_checkpoints.py",
        "            if len(shared):\n",
        "            if False:\n",
        "tests/contract/routers/test_router_crashes.py",
    ),
    _one(
        "flags that a failed sync lost believed from the page cache",
        "store/recovery/recovery.py",
        "doubtful = None if lost_writes else flagging\n",
        "doubtful = set()\n",
        f"{_DELETES}::test_a_delete_stays_done_whose_flags_a_failed_sync_has_lost",
    ),
    # --- parts of producers ------------------------------------------------------------------------------------------
    _one(
        "parts of producers lost at a checkpoint",
        "engine/recovery/engine_checkpoints.py",
        'lists[b"producers"] = prepared.producers',
        'lists[b"producers"] = []',
    ),
    _one(
        "parts of producers not read from the log",
        "store/recovery/recovery.py",
        "            catalog.add_part(topic_id, seq, entry)\n",
        "            pass\n",
    ),
    _one(
        "parts of a forgotten epoch appended again",
        "engine/state/producer_part.py",
        "        if entry is None and producer.refuses(self.epoch, core.producers.epochs_max):\n",
        "        if False:\n",
    ),
    _one(
        "a part known only by its name",
        "engine/state/known_producers.py",
        "        if total != (self.records, self.sum):\n",
        "        if False:\n",
    ),
    _one(
        "runs that were dropped not flagged in packs that stay",
        "store/checkpoint/dropped_runs.py",
        "        if pack.dropped:\n",
        "        if False:\n",
    ),
    _one(
        "parts in frames of files forgotten by a rebuild",
        "store/repair/rebuild.py",
        "        extensions=described.extensions,\n",
        "",
        "tests/engine/producers/test_known_producers.py",
    ),
    _one(
        "what is staged lost at a checkpoint",
        "engine/recovery/engine_checkpoints.py",
        "        if topic is self._stored.registry.staging:\n",
        "        if False:\n",
        "tests/engine/producers/test_staged_parts.py",
    ),
    _one(
        "pieces not read from the log",
        "engine/recovery/engine_catalog.py",
        "        self._stored.staged.add(piece, first_seq)\n",
        "        pass\n",
        "tests/engine/producers/test_staged_parts.py",
    ),
    _one(
        "pieces of an earlier try appended with those of the next",
        "engine/state/staged_parts.py",
        "        if told.piece == 0:\n",
        "        if told.piece == 0 and known is None:\n",
        "tests/engine/producers/test_staged_parts.py",
    ),
    _one(
        "staged pieces that a crash left after a part was appended never deleted",
        "engine/recovery/engine_catalog.py",
        "        self._stored.staged.recovered(registry.with_id, registry.staging)\n",
        "",
        "tests/engine/producers/test_staged_parts.py",
    ),
    # --- dormant topics ----------------------------------------------------------------------------------------------
    _one(
        "the seqs of a topic that was dormant given out again",
        "engine/shared/dormant.py",
        "        topic.begin(0)\n",
        "",
        "tests/engine/recovery/test_dormant.py",
    ),
    _one(
        "a dormant topic with records in the log left as the snapshot has it",
        "engine/recovery/engine_catalog.py",
        "        topic = self._topic(topic_id)\n        if topic is None or not len(rows.seqs):\n",
        "        topic = self._stored.registry.by_id.get(topic_id)\n        if topic is None or not len(rows.seqs):\n",
    ),
    _one(
        "a topic that has lost records reported as one that has not",
        "engine/shared/topic_snapshot.py",
        " and not floors.dead_through and",
        " and",
        "again",
    ),
    # --- what is seen before a kill and after it ---------------------------------------------------------------------
    _one(
        "what caps took before a delete not taken by a replay",
        "engine/recovery/engine_catalog.py",
        "        topic.enforce_caps(upto, *removal.cap)\n",
        "",
        "again",
    ),
    _one(
        "gaps below the first record reported by a start",
        "engine/recovery/engine_catalog.py",
        "            floors.settle_gaps(topic.earliest)\n",
        "",
        "again",
    ),
    _one(
        "a router that only one shard names left to the log",
        "engine/recovery/engine_catalog.py",
        "        has_lost = self._routers.has_half\n",
        "        has_lost = False\n",
        "again",
    ),
    _one(
        "reservations kept by a change of class that another follows",
        "engine/write/lifecycle.py",
        'if leaves_disk and topic.stage_class == "disk":',
        "if False:",
        "again",
    ),
    _one(
        "a pack that had the number before taken for the one listed",
        "store/segments/pack.py",
        "if PackHeader.unpack(data, path).epoch != pack.epoch or not _holds(index.table, pack):",
        "if False:",
        "tests/store/repair/test_damage.py",
    ),
    Mutant(
        "a reader of files takes another file of the same name",
        (
            ("files/piece_files.py", "if footer.epoch != piece.epoch:", "if False:"),
            ("files/piece_files.py", "if header.epoch != piece.epoch:", "if False:"),
            (
                "files/piece_files.py",
                "bool((topic_id, epoch) == (piece.topic_id, piece.epoch))",
                "topic_id == piece.topic_id",
            ),
        ),
        hunt=_FILES,
    ),
    _one(
        "a reader of files does not look at the flags of an index",
        "files/live_rows.py",
        "if dead.any()",
        "if False",
        _FILES,
    ),
    _one(
        "a reader of files does not report floors",
        "files/stored_topic.py",
        "found.append(Loss(self.name, at,",
        "(Loss(self.name, at,",
        _FILES,
    ),
    _one(
        "a flush answered before its sync",
        "engine/write/flush.py",
        "        self._core.log.when_flushed(None if topic is None else topic.id, self._on_flushed)\n",
        "        self._on_flushed(None)\n",
        "library",
    ),
    _one(
        "a commit in place without its sync",
        "store/wal/in_place_commits.py",
        "fd, blocks, offset, dsync=dsync)\n        except",
        "fd, blocks, offset, dsync=False)\n        except",
    ),
    _one(
        "a flush in one step answered without its sync",
        "store/wal/in_place_commits.py",
        "            self._start_waited_sync(in_place=True)\n        return not batches.unsynced\n",
        "            return True\n        return not batches.unsynced\n",
        "library",
    ),
    _one(
        "a flush that forgets appends which wait in the engine",
        "engine/write/format_wait.py",
        "        done = self._held.hold(done)\n",
        "",
        "library",
    ),
    _one(
        "a flush that forgets the file the log has left",
        "store/wal/background_sync.py",
        "        if not batches.unsynced:\n            done(None)\n",
        "        if not batches.unsynced or batches.sealed:\n            done(None)\n",
        "library",
    ),
    _one(
        "what a running sync covers taken for synced",
        "store/commits/synced_batches.py",
        "        for _, topics in self._covered:\n",
        "        for _, topics in ():\n",
        "library",
    ),
    _one(
        "a sync that covers no commit which is published after it began",
        "store/commits/synced_batches.py",
        "        self._covered.append((self.written, self.topics))\n        self.topics = {}\n",
        "        if self.topics:\n            self._covered.append((self.written, self.topics))\n"
        "            self.topics = {}\n",
        "tests/store/commits/test_synced_batches.py",
    ),
    _one(
        "no commit synced for the bound of unsynced bytes",
        "store/commits/commit_choice.py",
        "    if not fsync and shard.max_unsynced and",
        "    if not fsync and not shard.max_unsynced and",
    ),
    _one(
        "a reader's position before its records are there",
        "engine/readers/page_read.py",
        "upto = result.next_from_seq if interval is None",
        "upto = self._topic.next_seq - 1 if interval is None",
        "readers",
    ),
    _one(
        "a reader's commit answered before its sync",
        "engine/readers/reader_positions.py",
        'change.stage(synced=topic.stage_class == "fsync")',
        "change.stage(synced=False)",
        "readers",
    ),
    _one(
        "a reader's position left out of the snapshot",
        "engine/state/named_reader.py",
        "return ReaderRow(self.name, self.committed,",
        "return ReaderRow(self.name, 0,",
        "readers",
    ),
    _one(
        "a page at most once answered before its commit",
        "engine/readers/page_read.py",
        "        if self._commits:\n            self._page = page",
        "        if False:\n            self._page = page",
        "readers",
    ),
    _one(
        "a page that is out is committed with the next one",
        "engine/state/named_reader.py",
        "        for page in self.pages.values():\n            lowest = min(lowest, page.after)\n",
        "",
        "readers",
    ),
    _one(
        "what is done above a page that is out forgotten by a commit below it",
        "engine/state/named_reader.py",
        "        done = self.position - seq\n",
        "        done = 0\n",
        hunt="tests/engine/read/test_named_readers.py",
    ),
    _one(
        "pages that are out passed by a reader that delivers at most once from then on",
        "engine/state/named_reader.py",
        "                reader.seek(reader.done_through)\n",
        "                pass\n",
        hunt="tests/engine/read/test_named_readers.py",
    ),
    _one(
        "a reader holds only what it has not handed out",
        "engine/state/named_reader.py",
        "holding = reader.held if",
        "holding = reader.position if",
        "readers",
    ),
    _one(
        "a position above the head after a power cut",
        "engine/state/named_reader.py",
        "self.found(reader, min(reader.committed, head))",
        "self.found(reader, reader.committed)",
        "tests/engine/read/test_named_readers.py::test_a_power_cut_leaves_no_position_above_the_head",
    ),
    _one(
        "a reader trims what a router has not forwarded",
        "engine/write/delete.py",
        "    upto = min([upto, *(router.position for router in routers)])\n",
        "",
        "tests/contract/records/test_readers.py::test_a_reader_trims_no_record_before_the_routers_have_forwarded_it",
    ),
    _one(
        "a page that is given back stays out until its lease ends",
        "engine/readers/reader_calls.py",
        "        if reader.give_back(token):\n            wake(self._core, topic)\n\n        def on_commit",
        "        def on_commit",
        "tests/contract/records/test_readers.py"
        "::test_what_is_released_of_a_page_is_handed_out_again_before_anything_new",
    ),
    _one(
        "a cursor of another incarnation used as it is",
        "engine/values/incarnation.py",
        "return _ABOVE_ALL if known and known != present else from_seq",
        "return from_seq",
        "tests/contract/records/test_incarnations.py"
        "::test_a_cursor_of_another_topic_of_its_name_is_told_though_it_fits",
    ),
    _one(
        "a kind lost in a copy by position",
        "store/format/codec.c",
        "put_frame(q, TYPE_RECORD, kept, f.payload_kind, topic_id,",
        "put_frame(q, TYPE_RECORD, kept, PAYLOAD_JSON, topic_id,",
        "forwarding",
    ),
    Mutant(
        "a kind lost by a checkpoint",
        (
            (
                "store/format/codec.c",
                "        s->sum = XXH3_64bits_withSeed(p + lengths[i] - FRAME_TRAILER_BYTES, 8, s->sum);\n"
                "        s->size",
                "        s->size",
            ),
            (
                "store/format/codec.c",
                "    memcpy(out + written, bytes + begin, run);\n    return (int64_t)(written + run);\n",
                "    memcpy(out + written, bytes + begin, run);\n"
                "    uint8_t *q = (uint8_t *)out;\n"
                "    for (uint32_t i = 0; i < count; q += lengths[i++]) {\n"
                "        uint8_t deleted = q[lengths[i] - 1];\n"
                "        ((struct frame_header *)q)->payload_kind = PAYLOAD_JSON;\n"
                "        seal_frame(q, lengths[i]);\n"
                "        q[lengths[i] - 1] = deleted;\n"
                "        s->sum = XXH3_64bits_withSeed(q + lengths[i] - FRAME_TRAILER_BYTES, 8, s->sum);\n"
                "    }\n"
                "    return (int64_t)(written + run);\n",
            ),
        ),
    ),
    Mutant(
        "a kind lost by a merge of runs",
        (
            ("store/checkpoint/pack_copy.py", "_READS_A_STEP =", f"{_AS_JSON}_READS_A_STEP ="),
            (
                "store/checkpoint/pack_copy.py",
                "            data, seqs, scan = _checked(entry.topic_id, entry.all_rows, views)\n",
                "            views = [as_json(view) for view in views] if merged else views\n"
                "            data, seqs, scan = _checked(entry.topic_id, entry.all_rows, views)\n",
            ),
        ),
    ),
    Mutant(
        "a kind lost in a segment written anew",
        (
            (
                "store/checkpoint/segment_copy.py",
                "            with self._readers.one() as reader:\n",
                "            with self._readers.one() as reader:\n"
                "                reader.loses_kinds = bool(self._share.replaced)\n",
            ),
            ("store/checkpoint/live_frames.py", "_SPAN_MAX = 2\n", f"{_AS_JSON}_SPAN_MAX = 2\n"),
            (
                "store/checkpoint/live_frames.py",
                '            read = views[0] if len(views) == 1 else memoryview(b"".join(views))\n',
                '            read = views[0] if len(views) == 1 else memoryview(b"".join(views))\n'
                "            read = as_json(read) if self.loses_kinds else read\n",
            ),
        ),
        hunt=_BYTES,
    ),
    _one(
        "a kind lost by a router that writes its copies out",
        "store/format/codec.c",
        "(f.payload_kind == PAYLOAD_BYTES ? TP_ROW_IS_BYTES : 0);",
        "0;",
        "tests/engine/routers/test_copies.py",
    ),
    _one(
        "a kind lost where the pieces of a part are joined",
        "store/format/parts.c",
        "        h->ext_len = (uint16_t)ext_len;\n",
        "        h->ext_len = (uint16_t)ext_len;\n        h->payload_kind = PAYLOAD_JSON;\n",
        _BYTES,
    ),
    _one(
        "a kind lost on the way to the dead letters",
        "engine/queue/dead_letter.py",
        "is_bytes = job.payload_kind == PAYLOAD_BYTES",
        "is_bytes = False",
        _BYTES,
    ),
    _one(
        "a checksum of records that does not cover their kind",
        "store/format/parts.c",
        "(FLAG_TAG | FLAG_NODE | FLAG_META | TP_ROW_IS_BYTES)",
        "(FLAG_TAG | FLAG_NODE | FLAG_META)",
        _BYTES,
    ),
    _one(
        "a record of bytes staged before the directory is marked",
        "engine/write/format_wait.py",
        "        self.waiting[request.topic] = [(request, done)]\n        self.format.when_raised("
        "needed, partial(self._on_raised, request.topic, append))\n        return True",
        "        self.waiting[request.topic] = []\n        self.format.when_raised("
        "needed, partial(self._on_raised, request.topic, append))\n        return False",
        _BYTES,
    ),
    _one(
        "a refused write of bytes raises the format of the directory",
        "engine/write/appender.py",
        "        if self._format_wait.waiting and self._format_wait.join(request, done):\n",
        "        wait = self._format_wait\n"
        "        if wait.join(request, done) or (\n"
        "            wait.lacks(request.rows.spans) and wait.hold(request, done, self.append)\n"
        "        ):\n",
        _BYTES,
    ),
    _one(
        "a topic created for more frames than a batch has",
        "engine/write/lifecycle.py",
        "        request.check_frames()\n",
        "",
        _LARGE,
    ),
    _one(
        "a compressed segment begun before the directory is marked",
        "store/checkpoint/checkpoint_steps.py",
        "            await self._format.raise_to(SECOND_DIRECTORY_FORMAT)\n        moved",
        "            pass\n        moved",
        _COMPRESSED,
    ),
    _one(
        "a refused append that was staged",
        "embedded/appends/offers.py",
        "                raise refusal\n",
        "                driver.submit(self.offering(Offer(request, None)), lambda _outcome: None)\n"
        "                raise refusal\n",
        "library",
    ),
    _one(
        "of appends that joined each other only the first written",
        "embedded/appends/joined.py",
        "        if not self.others:\n",
        "        if self.others:\n",
        "library",
    ),
    _one(
        "appends to different topics join one request",
        "embedded/appends/offers.py",
        "self._join_or_offer(request, (request.topic, thread)",
        'self._join_or_offer(request, ("", thread)',
        "library",
    ),
    _one(
        "an append whose time has ended left in the line",
        "embedded/appends/offers.py",
        "            self.line.remove(offer)\n",
        "            self.line.index(offer)\n",
        "tests/embedded/appends/test_admission.py",
    ),
    _one(
        "files removed by a start that only reads",
        "store/recovery/recovery.py",
        "if (batches or not store.clean) and not is_frozen:",
        "if batches or not store.clean:",
        _CRASHES,
    ),
    _one(
        "a power cut not noticed by a start that only reads",
        "store/store_start.py",
        "self.power_lost = loaded is not None and self._lost_power(found, session)",
        "self.power_lost = loaded is not None and not self._is_frozen and self._lost_power(found, session)",
        "library",
    ),
    _one(
        "a claim that waits answered without jobs at once",
        "engine/queue/claim_wait.py",
        "or result.count or self._is_last:",
        "or True:",
        "queues",
    ),
    _one(
        "a job that its record delays claimable at once",
        "engine/write/append.py",
        "            self.topic.queue.hold_back(*self.delayed)\n",
        "            pass\n",
        "queues",
    ),
    _one(
        "the delays of the log forgotten by a start",
        "store/format/row_columns.py",
        "        yield int(topic_ids[0]), rows_of(frames, tags, table, file_id, times)\n",
        "        yield int(topic_ids[0]), rows_of(frames, tags, table, file_id)\n",
        "queues",
    ),
    _one(
        "an index without the delays of its segment",
        "engine/recovery/engine_checkpoints.py",
        "    dues = None if topic.queue is None else topic.queue.dues_of(seqs)\n",
        "    dues = None\n",
        _DELAYS,
    ),
    _one(
        "a pack's index without delays",
        "store/segments/pack.py",
        "        joined_times([(part.times, len(part.ts)) for part in parts]),\n",
        "",
        "queues",
    ),
    _one(
        "a delay that ends too early by what is left of it",
        "engine/index/held_back.py",
        "self.dues.take(now_ms, _A_LOOK)",
        "self.dues.take(now_ms + 25, _A_LOOK)",
        _DELAYS,
    ),
    _one(
        "a claim that waits not woken by the end of a record's delay",
        "engine/state/leases.py",
        "        due = self.held.dues.first() if self.held is not None else None\n",
        "        due = None\n",
        _DELAYS,
    ),
    _one(
        "jobs with delays staged before the directory is marked",
        "engine/write/format_wait.py",
        "        if flags & TIMES:\n",
        "        if False:\n",
        _DELAYS,
    ),
    _one(
        "a claim that takes jobs held back as fresh ones",
        "engine/state/leases.py",
        "                self.cursor, upto = self.held.free_after(self.cursor, head)\n",
        "                pass\n",
        "queues",
    ),
    _one(
        "holes forgotten by a snapshot",
        "engine/shared/topic_snapshot.py",
        "in topic.floors.gaps] if not is_rest",
        'in topic.floors.gaps if gap.reason != "ttl"] if not is_rest',
        "passing",
    ),
    Mutant(
        "floors of a snapshot from before its holes",
        (
            (
                "engine/shared/topic_snapshot.py",
                "        self._gaps = _Members()",
                "        self._floors = FloorMarks.of(topic.floors)\n        self._gaps = _Members()",
            ),
            (
                "engine/shared/topic_snapshot.py",
                "image_of(self._topic, self._now_ms, is_rest=True)",
                "msgspec.structs.replace(image_of(self._topic, self._now_ms, is_rest=True), floors=self._floors)",
            ),
        ),
        hunt=_IMAGES,
    ),
    Mutant(
        "attempts of a snapshot from before its leases",
        (
            (
                "engine/shared/topic_snapshot.py",
                "for leases in topic.queue.image_in_steps():\n                self._leases.add(leases)",
                "for leases in topic.queue.attempts_in_steps():\n                self._attempts.add(leases)",
            ),
            (
                "engine/shared/topic_snapshot.py",
                "for attempts in topic.queue.attempts_in_steps():\n                self._attempts.add(attempts)",
                "for attempts in topic.queue.image_in_steps():\n                self._leases.add(attempts)",
            ),
        ),
        hunt=_IMAGES,
    ),
    _one(
        "leases of a block left out of a snapshot",
        "engine/state/leases.py",
        "for number in list(self.jobs.blocks):",
        "for number in list(self.jobs.blocks)[1:]:",
        _IMAGES,
    ),
    _one(
        "attempts of jobs that fail during a snapshot left out of it",
        "engine/values/job.py",
        "through, found = jobs[-1].failure, True",
        "through = jobs[-1].failure",
        _IMAGES,
    ),
    _one(
        "an attempt left out of a snapshot",
        "engine/values/job.py",
        "if failure > through]",
        "if failure > through + 1]",
        _IMAGES,
    ),
    _one(
        "leases of very many deleted jobs counted as in flight",
        "engine/state/leases.py",
        "        self.leased -= (block.leased & bits).bit_count()\n",
        "",
        _LEASES,
    ),
    _one(
        "very many deleted jobs claimable",
        "engine/state/leases.py",
        "        block.returned &= ~bits\n",
        "",
        _LEASES,
    ),
    _one(
        "deadlines lost with a heap that was replaced",
        "engine/state/leases.py",
        "                    heappush(self._times, (until, seq))\n            # ",
        "                    pass\n            # ",
        _LEASES,
    ),
    _one(
        "an ack after the deadline, of one of very many leases that end at once",
        "engine/queue/ack_nack_extend.py",
        "or job.until < now_ms",
        "or False",
        _LEASES,
    ),
    _one(
        "records that expire by themselves missing without a word",
        "engine/write/retention.py",
        "        topic.floors.open_holes(self.seqs, topic.index.next_live)\n",
        "",
        "passing",
    ),
    _one(
        "a hole reported again by the read after it",
        "engine/state/tombstones.py",
        "    ahead = bisect_right(floors.gaps, cursor, key=_last)\n",
        "    ahead = bisect_right(floors.gaps, cursor - 1, key=_last)\n",
        _TTLS,
    ),
    _one(
        "neighbouring holes reported one by one",
        "store/format/floors.py",
        "        while end < len(gaps) and gaps[end].reason == TTL and",
        "        while end == at and gaps[end].reason == TTL and",
        "tests/engine/state/test_tombstones.py",
    ),
    _one(
        "a record that comes back with the clock after a start",
        "engine/write/retention.py",
        "removal(topic, ttl=expiry.ttl, seqs=to_runs(expiry.seqs))",
        "removal(topic, ttl=expiry.ttl)",
        _TTLS,
    ),
    _one(
        "holes of the log forgotten by a start",
        "engine/recovery/engine_catalog.py",
        "            floors.open_holes(sorted(self._expired.get(topic.id, ())), index.next_live)\n",
        "",
        "passing",
    ),
    _one(
        "holes below a floor that a replay leaves out",
        "store/format/floors.py",
        "        if first:\n            self.raise_to(ttl=seqs[first - 1])\n",
        "",
        "tests/engine/state/test_tombstones.py",
    ),
    _one(
        "an expiry of a record that a named reader holds",
        "engine/index/expiries.py",
        "            if seq > held:\n",
        "            if seq < 0:\n",
        _TTLS,
    ),
    _one(
        "an index without the ttls of its segment",
        "engine/recovery/engine_checkpoints.py",
        "    ends = None if topic.expiries is None else topic.expiries.of(seqs)\n",
        "    ends = None\n",
        "passing",
    ),
    _one(
        "the ttls of the log forgotten by a start",
        "engine/recovery/engine_catalog.py",
        "        if ends.any():\n",
        "        if ends.any() and False:\n",
        "passing",
    ),
    _one(
        "records of a dormant topic that do not expire",
        "engine/shared/dormant.py",
        "            takes &= np.add.reduceat(pack.rows.times[:, 1] > 0, starts, dtype=np.int64) == 0\n",
        "            pass\n",
        _TTLS,
    ),
    _one(
        "a record that expires a millisecond too early",
        "engine/write/append.py",
        "_with_times(self.ends, first, ts, ttls)",
        "_with_times(self.ends, first, ts - 1, ttls)",
        _TTLS,
    ),
    _one(
        "a claim that waits looks at its end only",
        "engine/queue/claim_wait.py",
        "elif self._is_last or self._leases",
        "elif self._is_last and self._leases",
        _CLAIMS,
    ),
    _one(
        "attempts not logged",
        "engine/queue/lease_log.py",
        "attempts = _last_attempts(jobs)",
        "attempts: list[AttemptRow] = []",
        "queues",
    ),
    _one(
        "attempts lost at a checkpoint",
        "engine/recovery/engine_catalog.py",
        "for attempt in image.attempts:",
        "for attempt in ():",
        "queues",
    ),
    _one(
        "a lease that expired before a kill forgotten by a replay",
        "engine/state/leases.py",
        "elif job.lease_id and lease.deliveries > job.deliveries:",
        "elif not job:",
        _ATTEMPTS,
    ),
    _one(
        "a dead letter deleted before its job is durable",
        "engine/write/appender.py",
        "                self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=True)",
        "                self._stage(topic, rows, flags_in(rows.spans), None, now_ms, None, False, done, synced=False)",
        _REDRIVE,
    ),
    _one(
        "a redriven dead letter not deleted",
        "engine/queue/redrive.py",
        "remove_jobs(self.core, topic, to_runs(self.seqs))",
        "pass",
        "queues",
    ),
    _one(
        "a redrive answered before its deletion is durable",
        "engine/queue/redrive.py",
        'operation.stage(synced=dead.stage_class == "fsync")',
        "operation.stage(synced=False)",
        _REDRIVE,
    ),
    _one(
        "redrives at the same time take the same dead letters",
        "engine/queue/redrive.py",
        "line.append(redrive.begin)",
        "redrive.begin()",
        _REDRIVE,
    ),
    _one(
        "a filter lets through a tag that begins as the one asked for",
        "engine/index/tag_matcher.py",
        "self.number = None if predicate.is_prefix else",
        "self.number = None if predicate.value else",
    ),
    _one(
        "a delete compares tags that came after it",
        "engine/index/tag_matcher.py",
        "min(at + _NAMES_A_STEP, end)",
        "at + _NAMES_A_STEP",
        "tests/engine/write/test_delete.py",
    ),
    _one(
        "a cursor skips a record that matches",
        "engine/index/tagged_rows.py",
        "start = start + len(which) if limit else int(rows[-1]) + 1",
        "start += len(which)",
    ),
    _one(
        "a filter hides a loss",
        "engine/read/read_pass.py",
        "entry.tombstone,\n                self._scanned,",
        "None if self._query.match else entry.tombstone,\n                self._scanned,",
    ),
    _one(
        "a filter that has looked at enough passes the rest",
        "engine/index/tagged_rows.py",
        "        through = max(through, chunk.first + start - 1)\n        if start < end:\n            break\n",
        "        through = max(through, chunk.first + start - 1)\n",
        _FILTERS,
    ),
    _one(
        "wanted nodes are left out",
        "store/read/render_json.py",
        "self._state.only_nodes = only_nodes",
        "self._state.only_nodes = False",
    ),
    # --- backups -----------------------------------------------------------------------------------------------------
    _one(
        "deletes from after its instant in a backup",
        "store/checkpoint/capture.py",
        "column[replaced.offsets[first:last] - offset] = replaced.were[first:last]",
        "pass",
        _BACKUPS,
    ),
    _one(
        "a file with new delete flags linked by the next backup",
        "store/backup/write_backup.py",
        "if self._capture.has_changed(path):",
        "if False:",
        _BACKUPS,
    ),
    _one(
        "the log after the snapshot left out of a backup",
        "store/checkpoint/snapshot_taker.py",
        "if not is_before(file, self.replay):\n                capture.hold",
        "if file.live_rows < 0:\n                capture.hold",
        _BACKUPS,
    ),
    _one(
        "a restored topic gives out seqs that clients know",
        "engine/recovery/engine_catalog.py",
        "given_out = min(given_out + self._skipped_seqs, SEQ_MAX)",
        "pass",
        _RESTORES,
    ),
    _one(
        "a restored delete that takes a later record with the seq of a failed write",
        "engine/recovery/engine_catalog.py",
        "        upto = min(removal.upto, last)\n",
        "        upto = removal.upto\n",
        "tests/engine/recovery/test_engine_catalog.py",
    ),
    _one(
        "a restored topic keeps its incarnation",
        "engine/recovery/engine_catalog.py",
        "if rebuilt or self._skipped_seqs or incarnation",
        "if rebuilt or incarnation",
        _RESTORES,
    ),
    _one(
        "a restore to a time that forgets seqs of later",
        "engine/recovery/engine_catalog.py",
        "self._known_seq(topic.id, topic.name))",
        "0)",
        "tests/embedded/calls/test_restore_call.py",
    ),
    _one(
        "log files reused before they are archived",
        "store/archive/waiting_log.py",
        "        self.bytes += size\n        return True",
        "        return False",
        _ARCHIVES,
    ),
    _one(
        "an archive that continues over a missing part of the log",
        "store/archive/log_copy.py",
        "header.first_batch_no > last_batch_no + 1",
        "False",
        _ARCHIVES,
    ),
    _one(
        "an archive that continues after a power cut",
        "store/archive/archiver.py",
        "if own.has_lost:",
        "if False:",
        _ARCHIVES,
    ),
    _one(
        "an archive that forgets losses of a start that was killed",
        "store/store_start.py",
        "await self._or_with_reserve(lambda: mark_losses(loop.files, directory, why))",
        "pass",
        _ARCHIVES,
    ),
    _one(
        "a moved segment copied from where it was",
        "store/checkpoint/snapshot_taker.py",
        "            path = tiers.path(segment)\n",
        "            path = stored.path\n",
        _BACKUPS,
    ),
    _one(
        "a restore up to a record that ends with a joined batch",
        "store/archive/find_record.py",
        "place = max(found, key=lambda place: place.topic_id)",
        "place = found[-1]",
        _ARCHIVED_SEQS,
    ),
    _one(
        "seqs of a timeline without a base given out again",
        "engine/recovery/archived_seqs.py",
        "await scan_without_base(loop, timeline, known.take)",
        "pass",
        _RECORDS,
    ),
    _one(
        "bases in the order of their times",
        "store/archive/unbroken_log.py",
        "        part.bases.sort(key=lambda base: list(base.first_log_files.values()))\n",
        "        part.bases.sort(key=lambda base: base.manifest.taken_ms)\n",
        _ARCHIVED_SEQS,
    ),
    _one(
        "an archive that is ahead of its note",
        "store/archive/archiver.py",
        "        await write_note(self._files, timeline, note)\n        self._note = note",
        "        self._note = note\n        await write_note(self._files, timeline, note)",
        _ARCHIVES,
    ),
    _one(
        "retention that removes the timelines of other servers",
        "store/archive/archive_retention.py",
        "note.line == line and ",
        "",
        _ARCHIVES,
    ),
    _one(
        "an archive in a hole that seems up to date",
        "store/archive/archiver.py",
        "return self._equal_ms if hole is None else hole.from_ms",
        "return self._equal_ms",
        _ARCHIVES,
    ),
    _one(
        "a restore to a time that has a batch of later",
        "store/archive/restore_archive.py",
        "if header.written_ms <= at_ms:",
        "if True:",
        _TIMES,
    ),
    _one(
        "a restore that takes damage for the end of the log",
        "store/archive/restore_archive.py",
        "    if last_batch_no >= archived_no:\n        return\n",
        "    return\n",
        _TIMES,
    ),
    _one(
        "a base that is removed part by part under its name",
        "store/backup/backup_files.py",
        "    await files.rename(path, removed)\n",
        "    removed = path\n",
        _ARCHIVES,
    ),
    _one(
        "an answer with an error has no line in the access log",
        "http/plan/call.py",
        "if service.access_log is not None and exchange is not None:",
        "if service.access_log is not None and exchange is not None and status < 400:",
        _ACCESS_LOGS,
    ),
    _one(
        "the last lines of the access log are not written at a stop",
        "server/access_log_file.py",
        "            self._timer.cancel()\n            self._begin()\n",
        "            self._timer.cancel()\n",
        _ACCESS_LOGS,
    ),
    _one(
        "a mirror that is ahead of its note",
        "store/archive/unbroken_log.py",
        "    if end is None:\n        return used\n",
        "    return used\n",
        _MIRRORS,
    ),
    _one(
        "a mirror that states more than it has",
        "store/mirror/mirror.py",
        "state(self.end.upto_ms)\n        if not",
        "state(self.end.upto_ms + 5000)\n        if not",
        _MIRRORS,
    ),
    _one(
        "a mirror that continues over a missing part of the log",
        "store/mirror/mirror.py",
        "self._chains is None or self._followed.holes != len(state.holes)",
        "self._chains is None",
        _MIRRORS,
    ),
    _one(
        "a mirror that does not compare the log's end",
        "store/mirror/log_pull.py",
        "end.batch != HOLE and at.batch_no != end.batch + 1",
        "False",
        _MIRRORS,
    ),
    _one(
        "a mirror that is followed on after its promotion",
        "store/mirror/mirror.py",
        "        await check_not_promoted(self._loop, self._root)\n",
        "",
        _MIRRORS,
    ),
    _one(
        "a mirror that follows another log without a word",
        "store/mirror/mirror.py",
        "or self._may_follow == state.timeline != self._followed.timeline",
        "or state.timeline != self._followed.timeline",
        _MIRRORS,
    ),
    _one(
        "a slot owned by two cores",
        "engine/moves/moved_topics.py",
        '        parts[owner].add(b"plain", _selected(block, some))\n',
        "        for each in {owner, min(found.core, len(parts) - 1)}:\n"
        '            parts[each].add(b"plain", _selected(block, some))\n',
        _CORES,
    ),
    _one(
        "names of files that move not synced before the move counts",
        "engine/moves/set_cores.py",
        "        await hand_over.sync()\n",
        "",
        _CORES,
    ),
    _one(
        "a move that was cut short not taken back",
        "engine/moves/set_cores.py",
        "        if stored.state is MapState.MOVING:\n            await self._discard(stored)\n",
        "",
        f"{_CORES}::test_a_move_that_was_cut_short_is_taken_back_by_a_start_with_the_cores_before",
    ),
    _one(
        "bytes that came while a connection left dropped",
        "loop/doors/departures.py",
        "departure.unread() + conn.held",
        "departure.unread()",
        _HAND_OVERS,
    ),
    _one(
        "bytes that came while a connection left sent twice",
        "loop/doors/departures.py",
        "departure.unread() + conn.held",
        "departure.unread() + conn.held + conn.held",
        _HAND_OVERS,
    ),
    _one(
        "a core started again while the server stops",
        "server/cores/supervisor.py",
        "                core.timer.cancel()\n",
        "",
        _SUPERVISOR,
    ),
    _one(
        "a supervisor that ends before its last core",
        "server/cores/supervisor.py",
        "if not self._has_ended and not any(core.runs for core in self._cores):",
        "if not self._has_ended and not all(core.runs for core in self._cores):",
        _SUPERVISOR,
    ),
    _one(
        "a core that was never ready started for ever",
        "server/cores/supervisor.py",
        "        elif not core.was_ready:\n",
        "        elif core.was_ready is None:\n",
        _SUPERVISOR,
    ),
    _one(
        "a connection sent before its receive has ended",
        "loop/doors/departures.py",
        "        conn.begin_leaving()\n",
        "        conn.begin_leaving()\n        self.settle(conn)\n",
        _HAND_OVERS,
    ),
    _one(
        "a connection that was sent answered here, too",
        "loop/doors/departures.py",
        "            if error == 0:",
        "            if error < 0:",
        _HAND_OVERS,
    ),
    _one(
        "a connection shut down when another core has it",
        "loop/connection.py",
        "        self.phase = CLOSING\n        self._traffic.closed_some = True\n",
        "        self._shut(0)\n        self._traffic.closed_some = True\n",
        _HAND_OVERS,
    ),
    _one(
        "a request forgotten when its connection leaves",
        "http/http1/http1_connection.py",
        "Phase.HEAD_QUEUED, Phase.LEAVING)",
        "Phase.HEAD_QUEUED)",
        _NEIGHBOURS,
    ),
    _one(
        "a topic served by a core that does not own it",
        "server/cores/neighbours.py",
        "return None if owner == self._core else owner",
        "return None",
        _NEIGHBOURS,
    ),
    _one(
        "a relayed answer given to another request",
        "http/relay/relay_client.py",
        "call = self.calls.get(row.number)",
        "call = next(reversed(self.calls.values()), None)",
        _RELAYS,
    ),
    _one(
        "a relayed request in doubt refused",
        "http/relay/relay_client.py",
        "self._turns.answer(call.drop)",
        "self._turns.answer(partial(call.fail, ElsewhereError(self._core)))",
        _RELAYS,
    ),
    _one(
        "a relayed request executed twice",
        "http/relay/relay_server.py",
        "        self._waiting += waiting\n",
        "        self._waiting += waiting + waiting[:1]\n",
        _RELAYS,
    ),
    _one(
        "relayed requests in another order than they came",
        "http/relay/relay_client.py",
        "            call = waiting.popleft()\n",
        "            call = waiting.pop()\n",
        _RELAYS,
    ),
    _one(
        "a relayed request executed by a core that does not own its topic",
        "http/relay/relay_server.py",
        "refusal is None and (core := self._elsewhere(plan.name)) is not None",
        "refusal is None and (core := None) is not None",
        _RELAYS,
    ),
    _one(
        "answers to relayed columns under each other's numbers",
        "http/relay/relayed_writes.py",
        'array("Q", numbers).tobytes()',
        'array("Q", reversed(numbers)).tobytes()',
        _RELAYED_WRITES,
    ),
    _one(
        "a relayed write that overtakes one of its topic, which is not plain",
        "http/relay/relayed_writes.py",
        "requests[0::_WORDS] = requests[1::_WORDS] = topics",
        'requests[0::_WORDS], requests[1::_WORDS] = array("I", range(len(plans))), topics',
        _RELAYED_WRITES,
    ),
    _one(
        "relayed answers of a pass given to each other's connections",
        "http/relay/relay_client.py",
        "answers.answer_whole(names, message.sizes",
        "answers.answer_whole(names[::-1], message.sizes",
        _RELAYED_WRITES,
    ),
    _one(
        "a list of two cores that is not in order",
        "http/spanning/spanning_lists.py",
        "sorted(rows + more, key=_NAME)[: page_size + 1]",
        "[*rows, *more][: page_size + 1]",
        _SPANNING,
    ),
    _one(
        "a list without the topics of a core",
        "http/spanning/spanning_lists.py",
        "        more, cursor = rows_of(answer)\n",
        "        more, cursor = rows_of(answer)\n        more = more if answer.core else []\n",
        _SPANNING,
    ),
    _one(
        "a page of a list beyond what each core has shown",
        "http/spanning/spanning_lists.py",
        "rows = [row for row in rows if row.name <= upto]",
        "rows = list(rows)",
        _SPANNING,
    ),
    _one(
        "a metric of two cores counted twice",
        "http/spanning/summed_pages.py",
        "if sample in samples else value",
        "if sample in samples else joined((value, value))",
        _SPANNING,
    ),
    _one(
        "a relayed request counted by both cores",
        "http/relay/relay_server.py",
        "        service.in_flight.of_others += 1\n",
        "",
        _SPANNING,
    ),
    _one(
        "an answer that spans cores counted by each",
        "http/spanning/portions.py",
        "        self._exchange = self.on_disconnect = None\n",
        "        super()._head_ready(status, size)\n",
        _SPANNING,
    ),
    _one(
        "a router between two cores",
        "engine/routers/router_manager.py",
        "        if core.registry.are_apart(config.source, config.dest):\n",
        "        if core.registry.are_apart(config.source, config.source):\n",
        _SPANNING,
    ),
    _one(
        "a relayed write of a lone client executed twice",
        "http/relay/relay_server.py",
        "                waiting.clear()\n",
        "",
        _RELAYS,
    ),
    _one(
        "a chunk of a relayed stream given to another one",
        "http/relay/relay_client.py",
        "self._turns.answer(partial(stream.write, block))",
        "self._turns.answer(partial(next(iter(self.streams.values())).write, block))",
        _STREAM_RELAYS,
    ),
    _one(
        "a chunk of a relayed stream dropped at a full window",
        "http/relay/relayed_stream.py",
        "        rows.add_chunk(self._number, data)\n",
        "        if self._untaken <= self._high_bytes:\n            rows.add_chunk(self._number, data)\n",
        _STREAM_RELAYS,
    ),
    _one(
        "the end of a relayed stream forgotten",
        "http/relay/far_stream.py",
        "            stream.end()\n",
        "            pass\n",
        _STREAM_RELAYS,
    ),
    _one(
        "a session of a key open to all on another core",
        "http/relay/relayed_head.py",
        "plan.principal.mark if plan.is_of_stream or plan.is_of_session else",
        "plan.principal.mark if plan.is_of_stream else",
        _STREAM_RELAYS,
    ),
    _one(
        "a session whose id leads to another core",
        "http/streams/watch_sessions.py",
        "self._owns is None or self._owns(wid)",
        "True",
        _STREAM_RELAYS,
    ),
    _one(
        "a record of another core before the ack of its publish",
        "http/spanning/far_feed.py",
        "or follower.asked > follower.answered:",
        "or False:",
        _FEEDS,
    ),
    _one(
        "a record of another core after the end of its subscription",
        "http/spanning/far_feed.py",
        "            del self._by_number[number], self.subscriptions[name]\n",
        "            del self.subscriptions[name]\n",
        _FEEDS,
    ),
    _one(
        "a topic of another core followed from its beginning",
        "http/spanning/far_feed.py",
        "self._order(Follow(number, name, from_seq))",
        "self._order(Follow(number, name, 0))",
        _FEEDS,
    ),
    _one(
        "a connection that outlives a core whose topics it follows",
        "http/spanning/far_feed.py",
        "            self._cut()\n            follower.lose(self._core)\n",
        "            self._cut()\n",
        _FEEDS,
    ),
    _one(
        "acks of publishes to several cores out of turn",
        "ws/session.py",
        "        if waiting[0] is not reply:\n",
        "        if waiting[0] is not reply and False:\n",
        _FEEDS,
    ),
    _one(
        "two routers of one name that are made at once",
        "http/spanning/spanning_routers.py",
        "        if len(waiting) == 1:\n",
        "        if waiting:\n",
        _SPANNING,
    ),
    _one(
        "a checkpoint that is done while that of a core is not",
        "http/spanning/spanning_checkpoint.py",
        "        if checkpoints.left:\n",
        "        if len(checkpoints.left) == self._cores.count:\n",
        _SPANNING,
    ),
    _one(
        "a checkpoint without that of a core",
        "http/spanning/spanning_checkpoint.py",
        "        self.left = dict.fromkeys(range(cores), 0)\n",
        "        self.left = dict.fromkeys(range(cores - 1), 0)\n",
        _SPANNING,
    ),
    _one(
        "bursts that wait reported as taken",
        "http/spanning/far_feed.py",
        "return bool(self._held) or (",
        "return False or (",
        _FAR_FEED,
    ),
)

"""A copy of a directory of backups, or of an archive, in a bucket; later what is new in it.

Nothing that a manifest names is changed or removed before a newer manifest is there and was read
back. So a copy that is killed at any moment leaves all that could be restored before.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from topics.embedded.bucket.bucket import Bucket, BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, BucketJoint
from topics.embedded.bucket.bucket_logs import check_may_add
from topics.embedded.bucket.bucket_manifest import (
    LOGS,
    PIECES,
    BucketManifest,
    Known,
    ManifestKey,
    WholeManifest,
    at_once,
    base_timeline,
    joint_of,
    list_manifests,
    pack,
    piece_bytes,
    piece_name,
    read_bucket_manifest,
    read_stored_manifest,
    to_store,
)
from topics.embedded.bucket.copied_parts import (
    BackupPart,
    JointPart,
    LogFilePart,
    LogPart,
    opened_file,
    read_log_file,
)
from topics.embedded.bucket.copied_timelines import end_ms
from topics.embedded.bucket.copied_tree import Tree, copied_trees
from topics.embedded.bucket.seen_bucket import SeenBucket, SendWindow, only_in, settled
from topics.errors import CorruptError, StorageError, UsageError
from topics.store.backup.backup_files import NOTE_NAME
from topics.store.backup.backup_manifest import MANIFEST_NAME, BackupFile, backup_age
from topics.store.disk.directory_format import SLOT_MAP_NAME

_KEPT = 2
"""Manifests of a log that are kept: another process may be about to continue from the older one."""
_WHOLE_FILES = 256
"""A log with fewer files has whole manifests only."""
_ATTEMPTS = 3


class SentCopy(NamedTuple):
    """The outcome of one call."""

    backups: int
    """Backups and bases whose manifest was written."""
    objects: int
    """Pieces that were sent."""
    bytes: int
    """Bytes of these."""
    upto_ms: int
    """Unix ms of the newest time that the bucket leads to, of all that was looked at; 0: none."""


@dataclass
class _Count:
    backups: int = 0
    objects: int = 0
    bytes: int = 0
    upto_ms: int = 0
    joints: list[BucketJoint] = field(default_factory=list)
    """The joint timelines that were looked at."""


class CopySender:
    """Copies one directory to one bucket, as often as `step` is called."""

    def __init__(
        self,
        bucket: Bucket,
        source: str,
        options: BucketOptions,
        *,
        rereads: bool = False,
        whole_files: int = _WHOLE_FILES,
    ) -> None:
        """rereads: whether to read back every piece that is there, and to send it again if it is
        not what its name says. whole_files: a log with fewer has whole manifests only.
        """
        self._bucket = bucket
        self._source = source
        self._options = options
        self._rereads = rereads
        self._whole_files = whole_files
        self._seen: SeenBucket | None = None
        self._count = _Count()

    async def step(self) -> SentCopy:
        """Copy what the directory has now and the bucket has not.

        Raises: UsageError, there is nothing to copy, or the bucket has another copy; CorruptError,
            a file or an object is not what it should be; StorageError, the bucket fails or is slow;
            FormatError. The bucket leads to all times of before then.
        """
        for attempt in range(_ATTEMPTS):
            self._count = _Count()
            try:
                await self._copy_all()
            except FileNotFoundError as error:  # the server removes what is too old
                self._seen = None
                if attempt + 1 == _ATTEMPTS:
                    raise StorageError(
                        f"{error.filename} is missing: it was removed while it was copied, or the backup is damaged, "
                        f"which `topics verify {self._source}` shows"
                    ) from None
                continue
            except BaseException:
                self._seen = None
                raise
            break
        return SentCopy(self._count.backups, self._count.objects, self._count.bytes, self._count.upto_ms)

    async def _copy_all(self) -> None:
        trees = copied_trees(self._source)
        first = next(trees)  # whether there is anything is asked before the bucket is
        seen = self._seen = self._seen or await self._look()
        await self._copy_tree(seen, first)
        for tree in trees:
            await self._copy_tree(seen, tree)
        if self._count.joints:
            self._count.upto_ms = max(self._count.upto_ms, self._end_of_cores(seen))

    def _end_of_cores(self, seen: SeenBucket) -> int:
        """Return the newest time of all cores that the bucket leads to, Unix ms; 0: none."""
        manifests = [known.manifest for known in seen.newest.values() if joint_of(known.manifest.path)]
        backups = sorted(
            (each for each in manifests if each.is_backup), key=lambda each: backup_age(os.path.basename(each.path))
        )
        logs = [each for each in manifests if not each.is_backup]
        return end_ms(BucketCopy(self._bucket, backups, logs, "", joints=self._count.joints))

    async def _look(self) -> SeenBucket:
        """Return what the bucket has."""
        seen = SeenBucket(await list_manifests(self._bucket))

        async def read(keys: list[ManifestKey]) -> None:
            for key in reversed(keys):
                with suppress(CorruptError):  # what it names is found again in the directory
                    known = seen.newest[key.path] = await read_bucket_manifest(self._bucket, key)
                    if not known.manifest.is_backup:
                        seen.stored |= {key: known.stored, known.whole.key: known.whole.manifest}
                    return

        await at_once(self._options.parallel, seen.keys.values(), read)
        return seen

    async def _copy_tree(self, seen: SeenBucket, tree: Tree) -> None:
        """Send all pieces of a tree, and then its manifests: the log's comes last."""
        if not tree.backups and tree.log is None and tree.joint is None:
            return
        marker = tree.backups[0].marker if tree.log is None and tree.joint is None else None
        await check_may_add(self._bucket, (known.manifest for known in seen.newest.values()), marker)
        if tree.joint is not None:
            await self._send_joint(seen, tree.joint)
            return
        made = [manifest for part in tree.backups if (manifest := await self._send_backup(seen, part)) is not None]
        log = await self._send_log(seen, tree.log, tree.backups) if tree.log is not None else None
        for manifest in made:
            await self._write_manifest(seen, manifest)
            self._count.backups += 1
        if log is not None:
            await self._write_manifest(seen, log)
            await self._remove_before(seen, log.path)
        if tree.log is None:
            upto_ms = max(part.manifest.taken_ms for part in tree.backups)
        else:  # of cores it is known in the end
            upto_ms = 0 if joint_of(tree.log.path) else tree.log.note.upto_ms
        self._count.upto_ms = max(self._count.upto_ms, upto_ms)

    async def _send_joint(self, seen: SeenBucket, part: JointPart) -> None:
        """Send the slot map of a joint timeline, which comes before the logs of its cores.

        So all that can be restored has its map, and what has no time of all cores yet is known.
        """
        prefix, piece = f"{LOGS}/{part.path}/{SLOT_MAP_NAME}", piece_name(part.slot_map)
        manifest = BucketManifest.of(part.path, NOTE_NAME, part.text, {SLOT_MAP_NAME: [piece]})
        known = seen.newest.get(part.path)
        if known is not None and known.manifest != manifest:
            raise UsageError(
                f"{self._bucket.url} has another archive with the name {part.path}: use a prefix for each server"
            )
        await self._list(seen, prefix)
        await self._reread(seen, manifest.piece_keys())
        sent = SendWindow(1)
        sent.add(f"{prefix}/{piece}", part.slot_map)
        await self._put(seen, sent)
        await self._check_sent(seen, prefix, sent.keys)
        if known is None:
            await self._write_manifest(seen, manifest)
        self._count.joints.append(BucketJoint(manifest, part.stored))

    # --- backups -----------------------------------------------------------------------------------------------------
    async def _send_backup(self, seen: SeenBucket, part: BackupPart) -> BucketManifest | None:
        """Send the pieces of a backup. Return the manifest to write, or None: none is needed."""
        known = seen.newest.get(part.path)
        if known is not None and known.manifest.description != part.text:
            raise UsageError(
                f"{self._bucket.url} has another backup with the name {part.path}: use a prefix for each server"
            )
        if part.path in seen.whole:
            return None
        await self._list(seen, PIECES)
        listed = part.manifest.files
        if known is not None:
            files = dict(known.manifest.files)
        else:
            copies = seen.pieces_by_file()
            files = {file.path: copies.get((file.path, file.bytes, file.xxh3), []) for file in listed}
        manifest = BucketManifest.of(part.path, MANIFEST_NAME, part.text, files)
        await self._reread(seen, manifest.piece_keys())
        sent = SendWindow(self._options.parallel)
        for file in listed:
            pieces = files.get(file.path, [])
            is_known = sum(map(piece_bytes, pieces)) == file.bytes
            if not is_known or not all(seen.is_there(f"{PIECES}/{piece}") for piece in pieces):
                files[file.path] = await self._send_file(seen, part, file, sent)
        await self._put(seen, sent)
        await self._check_sent(seen, PIECES, sent.keys)
        seen.whole.add(part.path)
        return manifest if known is None or files != known.manifest.files else None

    async def _send_file(self, seen: SeenBucket, part: BackupPart, file: BackupFile, sent: SendWindow) -> list[str]:
        """Send the missing pieces of a file, the last ones later; return all of them, in order."""
        path, digest, size = f"{part.directory}/{file.path}", xxhash.xxh3_64(), 0
        pieces: list[str] = []
        with opened_file(path) as opened:
            while data := opened.read(self._options.part_bytes):
                digest.update(data)
                size += len(data)
                pieces.append(piece_name(data))
                if sent.add(f"{PIECES}/{pieces[-1]}", data):
                    await self._put(seen, sent)
        if (size, digest.hexdigest()) != (file.bytes, file.xxh3):
            raise CorruptError(
                f"{path} is not what {MANIFEST_NAME} says: `topics verify {part.directory}` shows all damage; the "
                "bucket did not get this backup",
                {"path": path},
            )
        return pieces

    # --- the log -----------------------------------------------------------------------------------------------------
    async def _send_log(self, seen: SeenBucket, part: LogPart, backups: list[BackupPart]) -> BucketManifest | None:
        """Send what is new of a log. Return the manifest to write, or None: nothing is new.

        backups: its bases, whose manifests are written before.
        """
        known = seen.newest.get(part.path)
        if known is not None and known.manifest.note().upto_ms > part.note.upto_ms:
            raise UsageError(
                f"{self._bucket.url} is newer than {part.directory}, so it has a copy of another directory: use "
                "another prefix for this one"
            )
        before = known.manifest if known is not None else None
        # Files that the server has removed stay: bases in the bucket need them.
        files = dict(before.files) if before is not None else {}
        copied = [path for path in (*seen.newest, *(each.path for each in backups)) if base_timeline(path) == part.path]
        bases = {*(before.bases if before is not None else ()), *map(os.path.basename, copied)}
        manifest = BucketManifest.of(part.path, NOTE_NAME, part.text, files, bases=sorted(bases, key=backup_age))
        await self._list(seen, f"{LOGS}/{part.path}")
        if self._rereads:
            await self._reread(seen, manifest.piece_keys())
        whole = settled(before)
        for file in part.files:
            pieces = files.get(file.path, [])
            is_whole = sum(map(piece_bytes, pieces)) == file.bytes and file.path in whole
            if is_whole and all(seen.is_there(manifest.key(file.path, piece)) for piece in pieces):
                continue
            files[file.path] = await self._send_log_file(seen, part, file, pieces)
        return manifest if manifest != before else None

    async def _send_log_file(self, seen: SeenBucket, part: LogPart, file: LogFilePart, known: list[str]) -> list[str]:
        """Send the missing pieces of a log file; return all of them, in order.

        A log file grows by a few KiB at a time. A piece is joined with those before it that are not
        larger, so a file has few pieces, and no byte is sent more often than the logarithm of that.
        """
        data, prefix = memoryview(read_log_file(part.directory, file)), f"{LOGS}/{part.path}/{file.path}"
        pieces, at = [], 0
        for piece in known:
            size = piece_bytes(piece)
            if piece_name(data[at : at + size]) != piece or not seen.is_there(f"{prefix}/{piece}"):
                break
            pieces.append(piece)
            at += size
        while pieces and at < len(data):
            size = piece_bytes(pieces[-1])
            if size > len(data) - at or size + len(data) - at > self._options.part_bytes:
                break
            pieces.pop()
            at -= size
        sent, step = SendWindow(1 << 30), self._options.part_bytes
        for begin in range(at, len(data), step):
            pieces.append(piece_name(data[begin : begin + step]))
            sent.add(f"{prefix}/{pieces[-1]}", bytes(data[begin : begin + step]))
        await self._put(seen, sent)
        await self._check_sent(seen, prefix, sent.keys)
        return pieces

    async def _remove_before(self, seen: SeenBucket, path: str) -> None:
        """Remove manifests of a log from before the last two, and then what only they name.

        The whole manifests stay that the last two add to.
        """
        keys = seen.keys[path]
        newest = [await self._stored(seen, key) for key in keys[-_KEPT:]]
        whole = {manifest.adds_to for manifest in newest if manifest is not None}
        kept = [key for key in keys if key in keys[-_KEPT:] or key.name in whole]
        old = [key for key in keys if key not in kept]
        if not old:
            return
        removed = [await self._stored(seen, key) for key in old]
        needed = [manifest for key in kept if (manifest := await self._stored(seen, key)) is not None]
        unused = sorted({key for manifest in removed if manifest is not None for key in only_in(manifest, needed)})
        await self._bucket.delete([str(key) for key in old])
        await self._bucket.delete(unused)
        for gone in unused:
            seen.there.pop(gone, None)
        seen.keys[path] = kept
        for gone_key in old:
            seen.stored.pop(gone_key, None)

    async def _stored(self, seen: SeenBucket, key: ManifestKey) -> BucketManifest | None:
        """Return the manifest of a log as it is stored; None if it is damaged."""
        if key not in seen.stored:
            with suppress(CorruptError):
                seen.stored[key] = await read_stored_manifest(self._bucket, key)
        return seen.stored.get(key)

    # --- pieces and manifests ----------------------------------------------------------------------------------------
    async def _list(self, seen: SeenBucket, prefix: str) -> None:
        if prefix not in seen.listed:
            seen.there.update(await self._bucket.sizes(prefix))
            seen.listed.add(prefix)

    async def _put(self, seen: SeenBucket, window: SendWindow) -> None:
        """Send what waits in a window and is not there."""
        missing = {key: data for key, data in window.take() if not seen.is_there(key)}

        async def put(item: tuple[str, bytes]) -> None:
            await self._bucket.put(*item)

        await at_once(self._options.parallel, missing.items(), put)
        seen.there.update((key, len(data)) for key, data in missing.items())
        window.keys |= missing.keys()
        self._count.objects += len(missing)
        self._count.bytes += sum(map(len, missing.values()))

    async def _check_sent(self, seen: SeenBucket, prefix: str, sent: set[str]) -> None:
        """Compare what was sent with what the bucket lists; in rereads, with what it returns.

        Raises: CorruptError.
        """
        if not sent:
            return
        there = await self._bucket.sizes(prefix)
        for key in sorted(sent):
            if there.get(key) != seen.there[key]:
                found = f"with {there[key]} bytes" if key in there else "not"
                raise self._untrue(key, f"took {seen.there[key]} bytes, and is {found} in the bucket's list")
        if self._rereads:
            await self._reread(seen, sent)
            for key in sorted(sent):
                if not seen.is_there(key):
                    raise self._untrue(key, "was sent, and has other bytes")

    async def _reread(self, seen: SeenBucket, keys: set[str]) -> None:
        """Read pieces back, if the caller asked for `rereads`.

        A piece whose bytes are not those that its name says counts as missing from then on.
        """
        if not self._rereads:
            return

        async def read(key: str) -> None:
            data = await self._bucket.get(key)
            if data is None or piece_name(data) != key.rpartition("/")[2]:
                seen.there.pop(key, None)
            else:
                seen.reread.add(key)

        await at_once(self._options.parallel, sorted(keys & seen.there.keys() - seen.reread), read)

    async def _write_manifest(self, seen: SeenBucket, manifest: BucketManifest) -> None:
        """Write a manifest under a new name, and read it back.

        Raises: CorruptError, StorageError.
        """
        path = manifest.path
        known = seen.keys.get(path, [])
        await self._check_newest(path, known)
        newest = seen.newest.get(path)
        stored = to_store(manifest, newest.whole if newest is not None else None, self._whole_files)
        key, data = pack(stored, known[-1].number + 1 if known else 1)
        await self._bucket.put(str(key), data)
        if await self._bucket.get(str(key)) != data:
            await self._bucket.delete([str(key)])
            raise self._untrue(str(key), "was sent, and has other bytes")
        try:
            await self._check_newest(path, [*known, key])
        except StorageError:
            await self._bucket.delete([str(key)])
            raise
        seen.keys[path] = [*known, key]
        whole = newest.whole if newest is not None and stored.adds_to else WholeManifest(key, manifest)
        seen.newest[path] = Known(key, manifest, stored, whole)
        if not manifest.is_backup:
            seen.stored[key] = stored

    async def _check_newest(self, path: str, known: list[ManifestKey]) -> None:
        """Check that no other process has written manifests here. Raises: StorageError."""
        listed = (await list_manifests(self._bucket, path)).get(path, [])
        if listed != known:
            other = next(iter(sorted(set(listed) ^ set(known))))
            raise StorageError(
                f"{self._bucket.url}/{other}: the bucket does not list the manifests that this process left: another "
                "one copies to the same prefix, or the list is damaged: let one copy there, and try again"
            )

    def _untrue(self, key: str, what: str) -> CorruptError:
        where = f"{self._bucket.url}/{key}"
        return CorruptError(
            f"{where} {what}: the bucket is damaged: use another one; what could be restored from it before is as it "
            "was, which `topics verify` shows",
            {"path": where},
        )

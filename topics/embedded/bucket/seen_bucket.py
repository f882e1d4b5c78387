"""The known contents of a bucket, and the pieces that wait to be sent there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from topics.embedded.bucket.bucket_manifest import BucketManifest, Known, ManifestKey, piece_bytes
from topics.store.archive.archived_log import archived_directory, archived_name


class SendWindow:
    """Pieces that wait to be sent at the same time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: list[tuple[str, bytes]] = []
        self.keys: set[str] = set()
        """Keys of those that were sent."""

    def add(self, key: str, data: bytes) -> bool:
        """Add a piece; return whether the window is full."""
        self._waiting.append((key, data))
        return len(self._waiting) >= self._count

    def take(self) -> list[tuple[str, bytes]]:
        """Return the pieces that wait, and forget them."""
        taken, self._waiting = self._waiting, []
        return taken


@dataclass
class SeenBucket:
    """The known contents of a bucket. Any failure makes them unknown again."""

    keys: dict[str, list[ManifestKey]]
    """Keys of manifests, oldest first, by path."""
    newest: dict[str, Known] = field(default_factory=dict)
    """The newest manifest of each path, if it is sound."""
    stored: dict[ManifestKey, BucketManifest] = field(default_factory=dict)
    """Manifests of logs, as they are stored, of those that are kept and were read or written."""
    there: dict[str, int] = field(default_factory=dict)
    """Sizes of pieces by key, of the prefixes that were listed."""
    listed: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    """Paths of backups of which all is there."""
    reread: set[str] = field(default_factory=set)
    """Keys whose bytes were read back and are right."""

    def is_there(self, key: str) -> bool:
        """Return whether a piece is there with the size that its name states."""
        return self.there.get(key) == piece_bytes(key.rpartition("/")[2])

    def pieces_by_file(self) -> dict[tuple[str, int, str], list[str]]:
        """Return the pieces of files of backups, by what a backup's manifest says of them."""
        return {
            (file.path, file.bytes, file.xxh3): known.manifest.files[file.path]
            for known in self.newest.values()
            if known.manifest.is_backup
            for file in known.manifest.backup().files
            if file.path in known.manifest.files
        }


def only_in(manifest: BucketManifest, others: list[BucketManifest]) -> Iterator[str]:
    """Yield the keys of pieces of a log that are in none of the other manifests of it."""
    for path, pieces in manifest.files.items():
        kept = {piece for other in others for piece in other.files.get(path, ())}
        yield from (manifest.key(path, piece) for piece in pieces if piece not in kept)


def settled(manifest: BucketManifest | None) -> set[str]:
    """Return the files of a log to which nothing was added after its manifest was made."""
    if manifest is None:
        return set()
    return set(_settled_files(manifest))


def _settled_files(manifest: BucketManifest) -> Iterator[str]:
    for shard, end in manifest.note().shards.items():
        last = archived_name(shard, end.file_no)
        yield from (path for path in manifest.files if path.startswith(f"{archived_directory(shard)}/") and path < last)

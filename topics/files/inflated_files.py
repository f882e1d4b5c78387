"""File calls that show a compressed segment as the segment that it holds, delete flags included."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topics.files.file_calls import FileReads, read_range
from topics.store.format.compressed_segment import (
    HEADER_BYTES,
    Blocks,
    CompressedHeader,
    flag,
    flag_offsets,
    is_compressed,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(slots=True)
class _Inflated:
    """An open compressed segment."""

    blocks: Blocks
    flagged: list[int] = field(default_factory=list)
    """Offsets in the segment of delete flags that were set since it was compressed, ascending."""
    values: bytearray = field(default_factory=bytearray)
    """These flags."""
    block: int = -1
    """The block that was inflated last."""
    text: bytes = b""


class InflatedFiles:
    """The file calls of another object, over segments of either kind."""

    def __init__(self, calls: FileReads) -> None:
        self._calls = calls
        self._inflated: dict[int, _Inflated] = {}
        self.list_directory = calls.list_directory
        self.owner = calls.owner
        self.user = calls.user

    def open(self, path: str) -> int:
        """Return a descriptor. Raises: OSError, CorruptError, FormatError."""
        fd = self._calls.open(path)
        if path.endswith(".data"):
            try:
                self._look(fd, path)
            except BaseException:
                self.close(fd)
                raise
        return fd

    def _look(self, fd: int, path: str) -> None:
        fixed = read_range(self._calls, fd, 0, HEADER_BYTES)
        if not is_compressed(fixed):
            return
        header = CompressedHeader.unpack(fixed, path)
        table = read_range(self._calls, fd, header.table_at, 4 * header.blocks)
        found = self._inflated[fd] = _Inflated(Blocks(header, table, path))
        flags = read_range(self._calls, fd, HEADER_BYTES, header.flags_bytes)
        if any(flags):
            image = bytearray(header.image_bytes)
            self.read_into(fd, image, 0)
            for at in flag_offsets(image):
                before = image[at]
                flag(image, at, flags)
                if image[at] != before:
                    found.flagged.append(at)
                    found.values.append(image[at])
            found.block = -1

    def close(self, fd: int) -> None:
        self._inflated.pop(fd, None)
        self._calls.close(fd)

    def size(self, fd: int) -> int:
        """Return the size of the segment, or of any other file."""
        found = self._inflated.get(fd)
        return self._calls.size(fd) if found is None else found.blocks.header.image_bytes

    def read_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Do what `FileReads.read_into` does. Raises: OSError; CorruptError, a block is damaged."""
        found = self._inflated.get(fd)
        if found is None:
            return self._calls.read_into(fd, buffer, offset)
        view = memoryview(buffer).cast("B")
        header = found.blocks.header
        end = min(offset + len(view), header.image_bytes)
        at = offset
        while at < end:
            block = at // header.block_bytes
            if block != found.block:
                begin, size = found.blocks.place(range(block, block + 1))
                found.text = found.blocks.inflate(block, read_range(self._calls, fd, begin, size), begin)
                found.block = block
            part = found.text[at - block * header.block_bytes :][: end - at]
            view[at - offset : at - offset + len(part)] = part
            at += len(part)
        for row in range(bisect_left(found.flagged, offset), bisect_left(found.flagged, end)):
            view[found.flagged[row] - offset] = found.values[row]
        return max(0, end - offset)

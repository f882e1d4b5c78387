"""The endpoints of the archive. Source: wire contract, sections 7.20 and 7.21."""

from __future__ import annotations

import msgspec

from topics.common.values.archive_state import ArchiveState
from topics.errors import RequestError
from topics.http.plan.call import Call
from topics.http.wire.query import unsigned

_OCTETS = b"application/octet-stream"


def get_archive(call: Call) -> None:
    """Answer how far the archive is (7.20)."""
    state = archive_state(call)
    query = call.plan.query
    call.service.engine.archive.note_mirror(query.get("mirror", ""), unsigned(query, "upto_ms", 0))
    archive: dict[str, object] = {
        "timeline": state.timeline,
        "now_ms": state.now_ms,
        "upto_ms": state.upto_ms,
        "shards": {str(shard): end._asdict() for shard, end in sorted(state.shards.items())},
        "holes": [{"from_ms": begin, "to_ms": end} for begin, end in state.holes],
        "bases": state.bases,
    }
    if state.of_cores is not None:
        archive["of_cores"] = state.of_cores._asdict()
    call.reply(b'{"archive":%b,"performance":{"server_total_ms":%b}}' % (msgspec.json.encode(archive), call.total_ms()))


def get_file(call: Call) -> None:
    """Answer a piece of a file of the archive (7.21)."""
    archive_state(call)
    most = call.service.config.archive_piece_bytes
    query = call.plan.query
    offset, count = unsigned(query, "offset", 0), min(unsigned(query, "bytes", most), most)

    @call.or_fail
    def answer(piece: bytes) -> None:
        call.respond(200, piece, _OCTETS, b"")

    archive = call.service.engine.archive
    archive.read(query.get("timeline", ""), query.get("path", ""), min(offset, 1 << 62), count, answer)


def archive_state(call: Call) -> ArchiveState:
    """Return the archive's state. Raises: RequestError, also if the key may not ask for it."""
    if call.principal.restricted:
        raise RequestError("forbidden", "an archive holds all topics: use a key without prefixes")
    state = call.service.engine.archive.state
    if state is None:
        raise RequestError("invalid_request", "this server has no archive: start it with TOPICS_ARCHIVE_DIR")
    return state

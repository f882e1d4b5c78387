"""A publish is parsed by one scan, with the outcome of reading it field by field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from topics.config import Config
from topics.engine.bodies.write_body import WriteScanner
from topics.ws import commands
from topics.ws.commands import Command, Invalid, Publish, Subscribe, Unsubscribe, parse_command

LIMITS = Config(max_batch_records=3, ws_max_request_id_bytes=8)
SCANNER = WriteScanner(LIMITS)
MEMBERS = (
    *[b'"op":"publish"'] * 4,
    *[b'"topic":"t"'] * 4,
    *[b'"records":[{"data":1}]'] * 4,
    *(b'"op":"ping"', b'"op":"subscribe"', b'"op":"\\u0070ublish"', b'"op":1', b'"topic":"\\u0074"', b'"topic":""'),
    *(b'"topic":1', b'"topic":null', b'"records":[]', b'"records":{}', b'"records":[{}]', b'"records":[{"dat":1}]'),
    *(b'"records": [ {"data": {"a": 1}, "tag":"\\u0041", "x":1}]', b'"records":[{"data":1},{"data":2},3]'),
    *(
        b'"records":[{"data":1},{"data":2},{"data":3},{"data":4}]',
        b'"records":[{"data":{"a":1,"a":2}}]',
        b'"record":[]',
    ),
    *(b'"request_id":"r"', b'"request_id":[1, 2]', b'"request_id":"too long an id"', b'"request_id":null'),
    *(b'"return_seqs":false', b'"return_seqs":true', b'"return_seqs":null', b'"return_seqs":0', b'"node":"n"'),
    *(
        b'"node":["n"]',
        b'"create":false',
        b'"config":{}',
        b'"config":{"x":1}',
        b'"idempotency_key":"k"',
        b'"x":"publish"',
    ),
    *(b'"producer":{"id":"p","epoch":1,"part":0}', b'"producer":{}', b'"topics":{"t":{}}', b'"limit":1', b'"x":01'),
)


def told(command: Command) -> tuple[object, ...]:
    """Return a command as values that can be compared: records instead of the bytes that they point into."""
    if isinstance(command, Invalid) or not isinstance(command, Publish):
        return type(command), command
    body, rows = command.body, command.body.rows
    violation = None if body.violation is None else (body.violation.code, body.violation.message)
    producer = None if body.producer is None else body.producer.name
    others = body._replace(rows=None, violation=None, producer=None)  # type: ignore[arg-type]
    records = rows.count, rows.size, bytes(rows.spans), bytes(rows.buffer)
    return command._replace(body=None), others, producer, violation, records  # type: ignore[arg-type]


@examples(300)
@given(
    st.lists(st.sampled_from(MEMBERS), max_size=6), st.booleans(), st.sampled_from((b"{%b}", b"{%b", b"{%b}x", b"[%b]"))
)
def test_a_message_means_the_same_by_one_scan_as_field_by_field(
    members: list[bytes], strict: bool, shape: bytes
) -> None:
    message = shape % b",".join(members)
    found = told(parse_command(message, SCANNER, LIMITS, strict=strict))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_usual_publish", lambda *_arguments: None)
        assert found == told(parse_command(message, SCANNER, LIMITS, strict=strict))


@pytest.mark.parametrize("strict", [False, True])
def test_a_publish_is_scanned_once(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    scans = []

    class Counting(WriteScanner):
        def scan(self, body: bytes, *, command: bool = False):  # type: ignore[no-untyped-def]
            scans.append(body)
            return super().scan(body, command=command)

    monkeypatch.setattr(commands, "read_object", lambda *_arguments: pytest.fail("its fields were looked for again"))
    message = b'{"op":"publish","topic":"t","records":[{"data":1,"tag":"t"}],"request_id":7,"return_seqs":false}'
    command = parse_command(message, Counting(LIMITS), LIMITS, strict=strict)
    assert isinstance(command, Publish)
    assert (command.topic, command.request_id, command.return_seqs, scans) == ("t", b"7", False, [message])


def test_a_strict_publish_without_records_names_the_likely_key() -> None:
    """R-STRICT-4."""
    for wrong in (b'"record":[{"data":1}]', b'"records":[{"dta":1}]'):
        command = parse_command(b'{"op":"publish","topic":"t",%b}' % wrong, SCANNER, LIMITS, strict=True)
        assert isinstance(command, Invalid)
        assert "is an unknown key: did you mean" in command.message


@pytest.mark.parametrize("op", ["subscribe", "unsubscribe"])
def test_names_of_a_command_are_counted_before_one_is_looked_at(op: str) -> None:
    """769,000 of them took 3.9 s. What follows the first ones is no topic's beginning, or no name."""
    most = LIMITS.max_watch_topics
    names = [b'"n%d"' % number for number in range(most)]
    if op == "subscribe":
        few, more = [b"%b:{}" % name for name in names], [b'"x":1']
    else:
        few, more = names, [b'"x"'] * 20_000 + [b"1"]
    for members, is_refused in ((few, False), (few + more, True)):
        text = b"{%b}" % b",".join(members) if op == "subscribe" else b"[%b]" % b",".join(members)
        command = parse_command(b'{"op":"%b","topics":%b}' % (op.encode(), text), SCANNER, LIMITS)
        assert isinstance(command, Subscribe | Unsubscribe)
        assert (command.violation is not None) is is_refused

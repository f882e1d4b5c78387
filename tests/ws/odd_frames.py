"""Frames for publishes of a client by itself: plain, nearly so, or damaged; which of them arrive together is random."""

from __future__ import annotations

import random
import struct

from tests.engine.json import json_model
from tests.ws.frame_client import BINARY, CLOSE, PING, PONG, TEXT, frame

NAMES = (*["disk"] * 6, "fsync", "memory", "absent", "näme")
IDS = (*[b"7"] * 8, b'"a"', b'"\\u0041\\n"', b"-2.50e3", b"[1, 2]", b"{}", b"null", b"true", b"9" * 21, b"1e400", b"01")
IDS += (b'"\xff"', b'"\xc3\xa9"', b'"' + b"x" * 18 + b'"', b'"' + b"x" * 19 + b'"', b'"\\ud800"')
FIELDS = (
    *(b'"return_seqs":false', b'"return_seqs":true', b'"return_seqs":null', b'"return_seqs":1', b'"node":"n"'),
    *(b'"node":null', b'"create":false', b'"create":null', b'"disable_backpressure":true', b'"idempotency_key":"k"'),
    *(b'"config":{"cap_records":3}', b'"config":null', b'"producer":{"id":"p","epoch":1,"part":0}', b'"op":"publish"'),
    *(b'"request_id":8', b'"topic":"disk"', b'"unknown":[{"a":1}]', b'"\\u006fp":"ping"', b'"a\xff":1', b'"":0'),
    *(b'"incarnation":"0123456789abcdef"', b'"records":[]', b'"from_seq":99999999999999999999', b'"topics":{}'),
)
NUMBERS = (
    b"-0",
    b"1e308",
    b"1e309",
    b"1" * 400,
    b"0." + b"0" * 400 + b"1",
    b"18446744073709551616",
    b"01",
    b"1.",
    b"-",
)
SIZES = (0, 1, 60, 61, 62, 63, 64, 65, 125, 126, 127, 254, 19_900, 20_100, 31_000, 65_480, 65_535, 65_536, 70_000)
RAW = (b"\xff", b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0", b"\x1f", b"\\u12", b"\\ud83d\\ude00")
MASKS = (b"\1\2\3\4", b"\0\0\0\0", b"\xff\x80\x7f\0", b"\x22\x22\x22\x22")


def datum(rng: random.Random) -> bytes:
    """The text of one value, sound or not."""
    match rng.randrange(9):
        case 0:
            return rng.choice(NUMBERS)
        case 1:
            depth = rng.choice((1, 5, 122, 123, 124, 125, 126, 127, 128))
            return b"[" * depth + b"]" * depth if rng.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth
        case 2:
            return b'"%b"' % (b"x" * rng.choice(SIZES))
        case 3:
            return b'"%b%b"' % (b"y" * rng.randrange(40), rng.choice(RAW))
        case 4:
            return rng.choice((b"null", b"true", b"false", b"{}", b"[]", b'{"a":1,"a":2}', b'{"a": 1, "b" : [ ] }'))
        case _:
            return json_model.random_json(rng, rng.randrange(3)).encode()


def command(rng: random.Random) -> bytes:
    """A message that is a publish, or nearly one."""
    if rng.random() < 0.25:
        body = json_model.random_write(rng)
    else:
        more = (
            b'"meta":{"k":1}',
            b'"node":"n"',
            b'"tag":"t"',
            b'"x":1',
            b'"data":2',
            b'"data_base64":"/wA="',
            b'"ttl_ms":5',
        )
        records = []
        for _ in range(rng.choice((1, 1, 1, 2, 3, 40))):
            members = [b'"data":' + datum(rng), *rng.sample(more, k=rng.choice((0, 0, 0, 1, 2)))]
            records.append(b"{" + b",".join(members) + b"}")
        body = b'{"records":[' + b",".join(records) + b"]}"
    topic = rng.choice(NAMES).encode()
    name = rng.choice((b"%b", b"%b", b"%b", b"%b", b"\\u0064%b")) % topic
    members = [
        b'"op":' + (b'"publish"' if rng.random() < 0.95 else rng.choice((b'"pub\\u006cish"', b'"ping"', b"1", b'""')))
    ]
    members.append(b'"topic":"%b"' % name)
    if rng.random() < 0.8:
        members.append(b'"request_id":' + rng.choice(IDS))
    if rng.random() < 0.25:
        members += rng.sample(FIELDS, k=rng.choice((1, 1, 2)))
    if rng.random() < 0.5:
        rng.shuffle(members)
    blank = rng.choice((b"", b"", b"", b" ", b"\n"))
    inner = body.strip()[1:]
    text = b"{" + (b"," + blank).join(members) + b"," + inner
    if rng.random() < 0.05:
        text += rng.choice((b"x", b" ", b"\0", b"{}", b"\n\t"))
    return json_model.damaged(text, rng) if rng.random() < 0.08 else text


def framed(rng: random.Random, text: bytes) -> bytes:
    """The message as one frame, its length now and then in more bytes than it needs, or wrong."""
    mask = rng.choice(MASKS)
    if rng.random() < 0.9:
        return frame(TEXT, text, mask=mask)
    masked = frame(TEXT, text, mask=mask)[-len(text) :] if text else b""
    size = max(0, len(text) + rng.choice((0, 0, 0, 1, -1)))
    long = b"\xff" + struct.pack("!Q", size | rng.choice((0, 0, 1 << 63)))
    head = rng.choice((b"\xfe" + struct.pack("!H", size & 0xFFFF), long))
    return b"\x81" + head + mask + masked


def pieces(rng: random.Random) -> list[bytes]:
    """The receives of one connection: some plain publishes, then something that may be odd."""
    usual = b'{"op":"publish","topic":"%b","records":[{"data":%d}],"request_id":1}'
    name = rng.choice(NAMES).encode()
    first = [frame(TEXT, usual % (name, number)) for number in range(rng.choice((0, 2, 2, 3)))]
    text = command(rng)
    whole = framed(rng, text)
    if rng.random() < 0.7:
        return [*first, whole]
    cut, at = rng.randrange(len(text) + 1), rng.randrange(1, len(whole))
    parts = [frame(TEXT, text[:cut], fin=False), frame(0, text[cut:])]
    flipped = whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
    ping, plain = frame(PING, b"p"), frame(TEXT, usual % (name, 9))
    odd = rng.choice(
        (
            parts, [parts[0], ping, parts[1]], [b"".join(parts)], [whole[:at], whole[at:]], [whole + whole],
            [whole + plain[:3], plain[3:]], [ping + whole], [plain + ping], [ping], [frame(PONG, b"")],
            [frame(BINARY, text)], [plain + plain + whole[:at], whole[at:] + plain], [frame(TEXT, b"")],
            [frame(TEXT, text, rsv=rng.randrange(1, 8))], [frame(TEXT, text, mask=b"")],
            [frame(rng.randrange(16), text[:125])], [frame(TEXT, text, fin=False)], [whole[:at]], [flipped],
            [frame(CLOSE, rng.choice((b"", b"\3\xe8", b"\3", b"\3\xed")))], [plain + frame(CLOSE, b"")],
            [b"\x81" + bytes([rng.randrange(256)]) + rng.randbytes(rng.randrange(20))],
        )
    )  # fmt: skip
    return [*first, *odd, *([plain] * rng.choice((0, 1, 3)))]

"""Byte streams for the lane: requests that are plain, nearly so or broken, and what a server's answers come down to."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence

BODIES = (
    *[b'{"records":[{"data":{"a":1}}]}'] * 12,
    b'{"records": [{"data": {"a": [1, "b c"]}, "meta": {"x": 1}}]}',
    b'{"records":[{"data":1},{"data":"two"},{"data":[3,{"x":null}]}]}',
    b'{"records":[{"data":1,"tag":"t","node":"n","meta":{"k":"v"}}]}',
    b'{"records":[{"tag":"t","data":1},{"data":2}]}',
    b' { "records" : [ {"data":1} ] } ',
    b'{"records":[{"data":{"a": 1}}]}',
    b'{"records":[{"data":{"a":1,"a":2}}]}',
    b'{"records":[{"data":"\\u0041"}]}',
    b'{"records":[{"data":1,"tag":"\\u0041"}]}',
    b'{"records":[{"data":1,"tag":null,"node":null,"meta":null}]}',
    b'{"records":[{"data":1}],"node":"n1"}',
    b'{"records":[{"data":1}],"idempotency_key":"k"}',
    b'{"records":[{"data":1}],"producer":{"id":"p","epoch":1,"part":0}}',
    b'{"records":[{"data":2}],"producer":{"id":"p","epoch":1,"part":0},"idempotency_key":"k"}',
    b'{"producer":null,"records":[{"data":1}]}',
    b'{"records":[{"data":1}],"create":false}',
    b'{"records":[{"data":1}],"create":false,"create":true}',
    b'{"records":[{"data":1}],"unknown":[1,2]}',
    b'{"records":[{"data":1,"tga":"t"}]}',
    b'{"records":[{"data":1},{"data":2,"\\u0074ag":"t","x":{"y":1}}]}',
    b'{"records":[{"data":{"tga":1},"meta":{"nod":2}}]}',
    b'{"records":[{"data":1}],"incarnation":"0123456789abcdef"}',
    b'{"incarnation":null,"records":[{"data":1}]}',
    b'{"records":[{"data":1}],"incarnation":"0123456789ABCDEF"}',
    b'{"records":[]}',
    b'{"records":{}}',
    b'{"records":[{}]}',
    b'{"records":[{"data":1,"data":2}]}',
    b'{"records":[{"data":1e400}]}',
    b'{"records":[{"data":01}]}',
    b'{"records":[{"data":"\xff"}]}',
    b'{"records":[{"data":"\xc3\xa9"}]}',
    b'{"records":[{"data":"\\ud800"}]}',
    b'{"records":[{"data":' + b"[" * 126 + b"]" * 126 + b"}]}",
    b'{"records":[{"data":' + b"[" * 123 + b"]" * 123 + b"}]}",
    b'{"records":[{"data":1}]',
    b'{"records":[{"data":1}]}x',
    b'\xef\xbb\xbf{"records":[{"data":1}]}',
    b'{"records":[{"data":1,"tag":"' + b"t" * 300 + b'"}]}',
    b'{"records":[' + b",".join([b'{"data":7}'] * 40) + b"]}",
    b"[1]",
    b"{}",
    b"",
)
READS = (
    *[b'{"from_seq":0,"limit":3}'] * 6,
    *(b'{"from_seq":2}', b'{"from_seq":1,"limit":1}', b'{"limit":2}', b"{}", b'{"from_seq":3,"limit":40}'),
    *(b'{"from_seq":0,"include_tags":true}', b'{"include_meta":false,"limit":9}', b'{"max_batch_bytes":20}'),
    *(b' { "from_seq" : 4 ,\n"limit" : 2 } ', b'{"from_seq":1,"wait_ms":0}', b'{"from_seq":1,"wait_ms":5}', b" {}\t"),
    *(b'{"from_seq":0,"max_batch_bytes":0,"limit":0,"include_tags":false,"include_meta":true}', b'{"wait_ms":1}'),
    *(b'{"from_seq":99999999999999999999}', b'{"from_seq":18446744073709551615}', b'{"limit":4294967295}'),
    *(b'{"limit":4294967296}', b'{"limit":01}', b'{"limit":-1}', b'{"limit":1.0}', b'{"limit":1e2}', b'{"limit":"1"}'),
    *(
        b'{"limit":null}',
        b'{"limit":1,"limit":2}',
        b'{"node":["n"]}',
        b'{"unknown":[1,2]}',
        b'{"from_seq":1,}',
        b'{"limit":1',
    ),
    *(
        b'{"limit":1}x',
        b'{"limit" 1}',
        b'{"limit":}',
        b'{"\\u006cimit":1}',
        b'{"include_tags":1}',
        b'{"include_tags":tru}',
    ),
    *(
        b'{"include_meta":nul}',
        b"[]",
        b"1",
        b"",
        b" ",
        b'{"from_seq":1000000}',
        b'{"a\xff":1}',
        b'{"limit":1,"x":"\xff"}',
    ),
    *(b"{limit:1}", b'{"":1}', b"{,}", b'{"from_seq":0 "limit":3}', b'{"Limit":1}', b'{"limit":1}\0', b'{"node":[]}'),
)
LENGTHS = (
    *["Content-Length: {}"] * 12,
    *("content-length:{}", "Content-Length:\t{}", "Content-Length: {} ", "Content-Length: 00{}", "Content-Length: +{}"),
    *("Content-Length: {0}\r\nContent-Length: {0}", "Content-Length: {0}, {0}", "Content-Length : {}"),
    *("Content-Length: {}\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked", "Content-Length: -1", ""),
    *(
        "Content-Length: 0{}0",
        "Content-Length: 99999999999999999999",
        "Content-\tLength: {}",
        "X: y\r\n Content-Length: {}",
    ),
)
TYPES = (
    *["Content-Type: application/json"] * 12,
    *("content-type:application/json", "Content-Type: application/json; charset=utf-8", "Content-Type: text/plain"),
    *("Content-Type: application/jsonx", "Content-Type: Application/json", "Content-Type:  application/json ", ""),
    "Content-Type: text/plain\r\nContent-Type: application/json",
)
HOSTS = (
    *["Host: localhost"] * 12,
    *(
        "host: localhost",
        "Host: 127.0.0.1",
        "Host: evil.example",
        "Host: localhost:4000",
        "Host:",
        "Host: localhost\t",
        "",
    ),
    "Host: localhost\r\nHost: localhost",
)
FIELDS = (
    *("Accept: */*", "User-Agent: curl/8.1", "Accept-Encoding: gzip, deflate", "Connection: keep-alive"),
    *("connection: Keep-Alive", "Accept-Language: de", "Accept: application/json\r\nAccept: */*"),
    *(
        "Connection: close",
        "Connection: keep-alive, upgrade",
        "Connection: Upgrade\r\nUpgrade: websocket",
    ),
    *(
        "Idempotency-Key: key1",
        "Authorization: Bearer x",
        "Content-Encoding: gzip",
        "Content-Encoding: identity",
        "X: y",
        "X-Forwarded-For: 10.0.0.1",
        "X-Request-Id:",
        "traceparent: \x01",
    ),
    *(
        "Prefer: handling=strict",
        "prefer:handling=strict",
        "Prefer: handling=lenient",
        "Prefer: handling=strict ",
        "Prefer: Handling=Strict",
        "Prefer: respond-async, handling=strict",
        "Prefer: handling=lenient\r\nPrefer: handling=strict",
        "Origin: http://evil.example",
        "Sec-Fetch-Site: cross-site",
        "User-Agent: \x01",
        "User-Agent: a\nHost: b",
        "User-Agent: a\rb",
    ),
    *(
        "User-Agent: \x7f",
        "User-Agent: \xe9",
        "no colon",
        " folded",
        "User_Agent: x",
        "U\x53er-agent: y",
        "User-Agent : x",
    ),
    *("User\x0dAgent: x", "", "X-Long: " + "x" * 2000),
)
LINES = (
    *["POST /v0/topics/{} HTTP/1.1"] * 16,
    *("POST /v0/topics/{}?return_seqs=false HTTP/1.1", "POST /v0/topics/{}?return_seqs=0 HTTP/1.1"),
    *("POST /v0/topics/{}?return_seqs=true HTTP/1.1", "POST /v0/topics/{}?return_seqs=maybe HTTP/1.1"),
    *("POST /v0/topics/{}?return_seqs=false&return_seqs=true HTTP/1.1", "POST /v0/topics/{}? HTTP/1.1"),
    *("POST /v0/topics/{}#x HTTP/1.1", "POST /v0/topics/{}/diff HTTP/1.1", "POST /v0/topics/{}/ HTTP/1.1"),
    *(
        "POST /v0/topics/{} HTTP/1.0",
        "POST /v0/topics/{}  HTTP/1.1",
        "POST  /v0/topics/{} HTTP/1.1",
        "post /v0/topics/{} HTTP/1.1",
    ),
    *(
        "GET /v0/topics/{} HTTP/1.1",
        "DELETE /v0/topics/{} HTTP/1.1",
        "PUT /v0/topics/{} HTTP/1.1",
        "HEAD /v0/topics/{} HTTP/1.1",
    ),
    *("POST http://localhost/v0/topics/{} HTTP/1.1", "POST /v0/topics/{}%20 HTTP/1.1", "POST /v0/topics/ HTTP/1.1"),
    *("POST /v0/topics/{} HTTP/1.1 ", "POST /v0/topics/{} HTTP/2.0", "POST /v0/topics/{}\tHTTP/1.1", "PRI * HTTP/2.0"),
    *("\r\nPOST /v0/topics/{} HTTP/1.1", "POST /v0/topics/{}?x=1 HTTP/1.1"),
)
KEYS = "writer:rw,reader:r,narrow:w:t0,busy:rw+admin"
TOKENS = (
    *["Authorization: Bearer writer"] * 14,
    *("Authorization: Bearer busy", "Authorization: Bearer narrow", "authorization:Bearer writer"),
    *("Authorization: Bearer reader", "Authorization: Bearer  writer", "Authorization: Bearer writer "),
    *(
        "Authorization: bearer writer",
        "Authorization: Bearer nobody",
        "Authorization: Bearer",
        "Authorization: Basic writer",
    ),
    *("Authorization: Bearer write", "Authorization: Bearer writerr", ""),
    "Authorization: Bearer writer\r\nAuthorization: Bearer nobody",
    "Authorization: Bearer nobody\r\nAuthorization: Bearer writer",
)
ENDS = (*["\r\n"] * 30, "\n", "\r")


STRICT = "Prefer: handling=strict"


def plain_read(topic: str, body: bytes = READS[0], key: str = "", field: str = "") -> bytes:
    return plain(f"{topic}/diff", body, key, field)


def plain(topic: str, body: bytes = BODIES[0], key: str = "", field: str = "") -> bytes:
    """key: an API key; field: another line of the head."""
    head = f"POST /v0/topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    if field:
        head += f"{field}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


_MORE = (
    "",
    "",
    "",
    "Idempotency-Key: key1",
    "idempotency-key:key2",
    "Idempotency-Key: key3 ",
    "Idempotency-Key:",
    "Idempotency-Key: \x01",
    STRICT,
    STRICT,
    STRICT,
    f"{STRICT}\r\nIdempotency-Key: key1",
)


def odd_request(rng: random.Random, topics: Sequence[str], *, keys: bool) -> bytes:
    """Mostly plain; otherwise one or two things about it are not."""
    topic = rng.choice(topics)
    bodies: Sequence[bytes] = BODIES
    if rng.random() < 0.3:
        topic, bodies = f"{topic}/diff", READS
    if rng.random() < 0.4:
        known = rng.choice(("writer", "writer", "busy")) if keys else ""
        return plain(topic, rng.choice(bodies[:14] if rng.random() < 0.7 else bodies), known, rng.choice(_MORE))
    odd = {rng.choice(("line", "host", "type", "length", "field", "body", "end")) for _ in range(rng.randint(1, 2))}

    def pick(kind: str, choices: Sequence[str]) -> str:
        return rng.choice(choices) if kind in odd else choices[0]

    body = rng.choice(bodies) if "body" in odd else bodies[0]
    line = pick("line", LINES).format(topic)
    fields = [pick("host", HOSTS), pick("type", TYPES), pick("length", LENGTHS).format(len(body))]
    if "field" in odd:
        fields += rng.choices(FIELDS, k=rng.randint(1, 2))
    if keys:
        fields.append(rng.choice(TOKENS))
    rng.shuffle(fields)
    text = line + pick("end", ENDS)
    for field in fields:
        if field:
            text += field + pick("end", ENDS)
    return (text + "\r\n").encode("latin-1") + body


def stream(rng: random.Random, topics: Sequence[str], *, keys: bool = False) -> bytes:
    """A few requests of one connection, now and then damaged. keys: they say who they are, of `KEYS`."""
    data = b"".join(odd_request(rng, topics, keys=keys) for _ in range(rng.choice((1, 1, 1, 2, 3, 6))))
    if rng.random() < 0.15:
        at = rng.randrange(len(data))
        data = rng.choice(
            (data[:at], data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :], data[:at] + data[at + 1 :])
        )
    return data


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 0, 1, 2, 4)))) if data else []
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


_TIMES = re.compile(
    rb'("(?:server_total_ms|wal_append_ms|fsync_ms|\$ts|last_write_ts|last_read_ts|effective_priority)":)[0-9.]+'
)
_INCARNATION = re.compile(rb'("incarnation":)"[0-9a-f]{16}"')
_LENGTH = re.compile(rb"(Content-Length:) [0-9]+")
_COMPRESSED = re.compile(rb"Content-Encoding: gzip\r\n(?:[^\r]+\r\n)*\r\n(?=\x1f\x8b\x08)")
_DATE = re.compile(rb"Date: [^\r]*\r\n")


_CUT = re.compile(
    rb'("message":)"(?:a bare CR or LF in the request head|a header field is malformed[^"]*'
    rb'|this is not an HTTP request|the request line is not [^"]*)"'
)
"""Which of these is said of a broken head depends on how much of it is here when it is looked at."""


def without_chance(answers: bytes) -> bytes:
    """Return a server's answers, decompressed, without times, the lengths they make, and incarnations."""
    plain = b""
    while (head := _COMPRESSED.search(answers)) is not None:
        stream = zlib.decompressobj(31)
        at = head.end()
        plain += answers[:at] + stream.decompress(answers[at:])
        answers = stream.unused_data
    answers = plain + answers
    answers = _INCARNATION.sub(rb"\1", answers)
    return _DATE.sub(b"", _LENGTH.sub(rb"\1", _CUT.sub(rb"\1", _TIMES.sub(rb"\1", answers))))

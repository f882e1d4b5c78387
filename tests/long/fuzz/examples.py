"""Inputs made by hand, by decoder and by what they are: sound ones, and broken in a way worth starting from."""

from __future__ import annotations

import struct

from tests.http.http2.test_h2_connection import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)
from tests.http.http2.test_h2_connection import frame as h2_frame
from tests.ws import frame_client
from tests.ws.frame_client import frame

_JSON = b"Content-Type: application/json\r\n"


def _request(line: bytes, body: bytes = b"", fields: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return line + b" HTTP/1.1\r\nHost: localhost\r\n" + (_JSON if body else b"") + fields + length + b"\r\n" + body


def _chunked(body: bytes) -> bytes:
    return _request(b"POST /v0/topics/a", fields=_JSON + b"Transfer-Encoding: chunked\r\n") + body


_WRITE = _request(b"POST /v0/topics/a", b"{}")
_READ = _request(b"GET /v0/topics/a")

_HTTP1 = {
    "a write": _WRITE,
    "a read with an escaped query": _request(b"GET /v0/topics/caf%C3%A9?x=%3E&x=+"),
    "three pipelined": _WRITE + _READ + _WRITE,
    "behind one that waits": _request(b"GET /park") + _READ,
    "behind a stream": _request(b"GET /stream") + _READ,
    "a body in chunks, with extension and trailer": _chunked(b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX: y\r\n\r\n"),
    "a chunk that is longer than it says": _chunked(b"1\r\n{}\r\n0\r\n\r\n"),
    "a chunk size of 17 digits": _chunked(b"10000000000000000\r\n"),
    "a chunk size that is signed": _chunked(b"+2\r\n{}\r\n0\r\n\r\n"),
    "expect": _request(b"POST /v0/topics/a", b"{}", b"Expect: 100-continue\r\n"),
    "version 1.0": b"GET /v0/topics/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "two lengths": _request(b"POST /v0/topics/a", b"{}", b"Content-Length: 2\r\n"),
    "two lengths that differ": _request(b"POST /v0/topics/a", b"{}", b"Content-Length: 3\r\n"),
    "length and chunks": _request(b"POST /v0/topics/a", b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"),
    "a length of 2**64": _request(b"POST /v0/topics/a", fields=_JSON + b"Content-Length: 18446744073709551616\r\n"),
    "chunked twice": _chunked(b"0\r\n\r\n").replace(b"chunked", b"chunked, chunked"),
    "bare line feeds": _READ.replace(b"\r\n", b"\n"),
    "a bare carriage return": _READ.replace(b"localhost\r\n", b"localhost\r"),
    "a folded field": _request(b"GET /v0/topics/a", fields=b"X: y\r\n z\r\n"),
    "a blank before the colon": _request(b"GET /v0/topics/a", fields=b"X : y\r\n"),
    "a zero byte in a field": _request(b"GET /v0/topics/a", fields=b"X: \0\r\n"),
    "an upgrade": _request(b"GET /v0/topics/a", fields=b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "no host": b"GET /v0/topics/a HTTP/1.1\r\n\r\n",
    "two hosts": _request(b"GET /v0/topics/a", fields=b"Host: localhost\r\n"),
    "a target with a host": _request(b"GET http://localhost/v0/topics/a"),
    "a target that is no path": _request(b"OPTIONS *"),
    "a head over its limit": _request(b"GET /v0/topics/a", fields=b"X: " + b"y" * 400 + b"\r\n"),
    "too many fields": _request(b"GET /v0/topics/a", fields=b"X: y\r\n" * 9),
    "blank lines before": b"\r\n\r\n" + _READ,
    "the preface of HTTP/2, late": _READ + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a gzip that is none": _request(b"POST /v0/topics/a", b"{}", b"Content-Encoding: gzip\r\n"),
}

_H2_GET = b"\x82\x86\x01\x09localhost\x04\x0d/v0/topics/ab"
"""HPACK, without Huffman: GET, http, :authority, :path."""
_H2_POST = b"\x83\x86\x01\x09localhost\x04\x0d/v0/topics/ab\x0f\x10\x10application/json"
_H2_PARK = b"\x82\x86\x01\x09localhost\x04\x05/park"
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_BOTH = _END_STREAM | _END_HEADERS
_H2_READ = h2_frame(HEADERS, _BOTH, 1, _H2_GET)
_HELLO = h2_frame(SETTINGS, 0, 0)

_HTTP2 = {
    "a read": _HELLO + h2_frame(SETTINGS, _ACK, 0) + _H2_READ,
    "a write": _HELLO + h2_frame(HEADERS, _END_HEADERS, 1, _H2_POST) + h2_frame(DATA, _END_STREAM, 1, b"{}"),
    "a head in three frames": _HELLO
    + h2_frame(HEADERS, _END_STREAM, 1, _H2_GET[:5])
    + h2_frame(CONTINUATION, 0, 1, _H2_GET[5:9])
    + h2_frame(CONTINUATION, _END_HEADERS, 1, _H2_GET[9:]),
    "two that wait, one is reset": _HELLO
    + h2_frame(HEADERS, _BOTH, 1, _H2_PARK)
    + h2_frame(HEADERS, _BOTH, 3, _H2_PARK)
    + h2_frame(RST_STREAM, 0, 1, struct.pack(">I", 8)),
    "padded": _HELLO
    + h2_frame(HEADERS, _END_HEADERS | 8, 1, b"\x02" + _H2_POST + b"\0\0")
    + h2_frame(DATA, _END_STREAM | 8, 1, b"\x01{}\0"),
    "padding longer than the frame": _HELLO + h2_frame(HEADERS, _BOTH | 8, 1, b"\xff" + _H2_GET),
    "a small window that grows": h2_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1))
    + _H2_READ
    + h2_frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 70_000)),
    "a window over its limit": _HELLO + _H2_READ + h2_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF)),
    "a window by zero": _HELLO + _H2_READ + h2_frame(WINDOW_UPDATE, 0, 1, bytes(4)),
    "a ping and a goaway": _HELLO + h2_frame(PING, 0, 0, b"12345678") + h2_frame(GOAWAY, 0, 0, bytes(8)) + _H2_READ,
    "a ping too short": _HELLO + h2_frame(PING, 0, 0, b"1234567"),
    "settings out of range": h2_frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 1)),
    "pushes allowed and a large table": h2_frame(SETTINGS, 0, 0, struct.pack(">HIHI", 2, 1, 1, 1 << 31)) + _H2_READ,
    "a stream that goes back": _HELLO + h2_frame(HEADERS, _BOTH, 5, _H2_GET) + h2_frame(HEADERS, _BOTH, 3, _H2_GET),
    "an even stream": _HELLO + h2_frame(HEADERS, _BOTH, 2, _H2_GET),
    "data on a stream that is idle": _HELLO + h2_frame(DATA, 0, 7, b"{}"),
    "data behind the end": _HELLO + _H2_READ + h2_frame(DATA, 0, 1, b"{}"),
    "a continuation of nothing": _HELLO + h2_frame(CONTINUATION, _END_HEADERS, 1, _H2_GET),
    "an index that is not in the table": _HELLO + h2_frame(HEADERS, _BOTH, 1, b"\xff\xff\x7f"),
    "Huffman code that does not end": _HELLO + h2_frame(HEADERS, _BOTH, 1, b"\x82\x86\x04\x81\xff"),
    "a head over its limit": _HELLO + h2_frame(HEADERS, _BOTH, 1, _H2_GET + b"\0\x01x\x7f\x81\x05" + b"y" * 768),
    "trailers": _HELLO
    + h2_frame(HEADERS, _END_HEADERS, 1, _H2_POST)
    + h2_frame(DATA, 0, 1, b"{}")
    + h2_frame(HEADERS, _BOTH, 1, b"\0\x01x\x01y"),
    "a path twice": _HELLO + h2_frame(HEADERS, _BOTH, 1, _H2_GET + b"\x04\x01/"),
    "a field in capitals": _HELLO + h2_frame(HEADERS, _BOTH, 1, _H2_GET + b"\0\x01X\x01y"),
    "connect": _HELLO + h2_frame(HEADERS, _END_HEADERS, 1, b"\x02\x07CONNECT\x01\x09localhost"),
    "a body shorter than its length": _HELLO
    + h2_frame(HEADERS, _END_HEADERS, 1, _H2_POST + b"\x0f\x0d\x013")
    + h2_frame(DATA, _END_STREAM, 1, b"{}"),
    "a frame over its limit": _HELLO + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01",
    "an unknown frame": _HELLO + h2_frame(0x42, 0xFF, 9, b"?") + _H2_READ,
}

_FRAMES = {
    "a text": frame(frame_client.TEXT, b'{"op":"ping"}'),
    "a text in pieces around a ping": frame(frame_client.TEXT, b"\xe2\x82", fin=False)
    + frame(frame_client.PING, b"x")
    + frame(0, b"\xac"),
    "binary of 126 bytes": frame(frame_client.BINARY, bytes(126)),
    "a pong nobody asked for": frame(frame_client.PONG, b""),
    "a close": frame(frame_client.CLOSE, b"\x03\xe8bye"),
    "a text behind a close": frame(frame_client.CLOSE, b"") + frame(frame_client.TEXT, b"late"),
    "a close of one byte": frame(frame_client.CLOSE, b"\x03"),
    "a close with a code nobody may send": frame(frame_client.CLOSE, b"\x03\xed"),
    "a close with a broken reason": frame(frame_client.CLOSE, b"\x03\xe8\xff"),
    "not masked": frame(frame_client.TEXT, b"x", mask=b""),
    "not masked, and a text in the rest of its head": b"\x82\x7e\x01" + frame(frame_client.TEXT, b"late"),
    "reserved bits": frame(frame_client.TEXT, b"x", rsv=4),
    "a reserved opcode": frame(3, b"x"),
    "a continuation of nothing": frame(0, b"x"),
    "a text within a text": frame(frame_client.TEXT, b"x", fin=False) + frame(frame_client.TEXT, b"y"),
    "a ping in pieces": frame(frame_client.PING, b"x", fin=False),
    "a ping of 126 bytes": frame(frame_client.PING, bytes(126)),
    "broken UTF-8": frame(frame_client.TEXT, b"\xff"),
    "UTF-8 cut at the end": frame(frame_client.TEXT, b"\xe2\x82"),
    "a surrogate": frame(frame_client.TEXT, b"\xed\xa0\x80"),
    "a length in more bytes than needed": b"\x81\xfe\0\x01\1\2\3\4x",
    "a length of 2**63": b"\x81\xff\x80\0\0\0\0\0\0\0\1\2\3\4",
    "a frame over a limit": frame(frame_client.TEXT, b"x" * 101),
}

_MESSAGES = {
    "ping": b'{"op":"ping","request_id":7}',
    "subscribe to one": b'{"op":"subscribe","topic":"a","from_seq":3,"include_tags":true}',
    "subscribe to many": b'{"op":"subscribe","topics":{"a":{"from_seq":1},"b":{"tail":true}},"request_id":"r"}',
    "unsubscribe": b'{"op":"unsubscribe","topics":["a","b"]}',
    "publish": b'{"op":"publish","topic":"a","records":[{"data":1,"tag":"t"}],"idempotency_key":"k","request_id":{}}',
    "publish bytes": b'{"op":"publish","topic":"a","records":[{"data_base64":"/wA="},{"data":1}]}',
    "subscribe from the last": b'{"op":"subscribe","topic":"a","from":{"last":10}}',
    "subscribe from a time": b'{"op":"subscribe","topics":{"a":{"from":{"time":1789000000000}},"b":{"from":"now"}}}',
    "two places to begin": b'{"op":"subscribe","topic":"a","from_seq":1,"from":"first"}',
    "an op that is none": b'{"op":"sing"}',
    "an op twice": b'{"op":"ping","op":"publish"}',
    "a start of the wrong kind": b'{"op":"subscribe","topics":{"a":1}}',
    "topics of the wrong kind": b'{"op":"unsubscribe","topics":[1]}',
    "a seq over 2**64": b'{"op":"subscribe","topic":"a","from_seq":18446744073709551616}',
    "a name that is escaped": b'{"op":"subscribe","topic":"\\u0061\\ud83d\\ude00"}',
    "half a surrogate": b'{"op":"subscribe","topic":"\\ud83d"}',
    "no object": b"[]",
    "cut": b'{"op":"pi',
}

_DEEP = 130
_BODIES = {
    "all fields": b'{"records":[{"data":{"a":[1,-2.5e3,"\\u00e9",true,null]},"tag":"t","node":"n","meta":{"k":"v"}},'
    b'{"data":0}],"node":"m","idempotency_key":"k","create":true,"config":{"cap_records":5}}',
    "a part": b'{"records":[{"data":0}],"producer":{"id":"\\u0070","epoch":9223372036854775807,"part":65535,"x":[]}}',
    "a part with too much": b'{"producer":{"id":"p","epoch":9223372036854775808,"part":1e5,"id":""},"records":[]}',
    "bytes": b'{"records":[{"data_base64":"/wA=","tag":"t"},{"data":1},{"data_base64":""}]}',
    "bytes with escapes": b'{"records":[{"data_\\u0062ase64":"\\u002fwA\\u003d"}]}',
    "both kinds of data": b'{"records":[{"data":1,"data_base64":"/wA="}]}',
    "base64 without its end": b'{"records":[{"data_base64":"/wA"}]}',
    "base64 with bits behind its end": b'{"records":[{"data_base64":"/wB="}]}',
    "base64 of another alphabet": b'{"records":[{"data_base64":"_wA="},{"data_base64":"/w A="}]}',
    "base64 that is no text": b'{"records":[{"data_base64":[47]}]}',
    "blanks everywhere": b' { "records" : [ { "data" : { "a" : 1 } } ] } ',
    "nulls": b'{"records":[{"data":null,"tag":null,"node":null,"meta":null}],"node":null,"config":null}',
    "escaped names": b'{"\\u0072ecords":[{"d\\u0061ta":1}]}',
    "a number at each end": b'{"records":[{"data":[1e400,-0,0.0,1E+2,18446744073709551615]}]}',
    "numbers that are none": b'{"records":[{"data":[01,1.,.5,+1,0x1,NaN]}]}',
    "keys twice": b'{"records":[{"data":1,"data":2}],"records":[]}',
    "keys twice, inside": b'{"records":[{"data":{"a":1,"\\u0061":2}}]}',
    "deep": b'{"records":[{"data":' + b"[" * _DEEP + b"]" * _DEEP + b"}]}",
    "UTF-8 overlong": b'{"records":[{"data":"\xc0\x80"}]}',
    "UTF-8 cut by a quote": b'{"records":[{"data":"\xe2\x82"}]}',
    "half a surrogate": b'{"records":[{"data":"\\ud800","tag":"\\udc00"}]}',
    "a control character": b'{"records":[{"data":"\n"}]}',
    "a tag over its limit": b'{"records":[{"data":1,"tag":"' + b"t" * 300 + b'"}]}',
    "many": b'{"records":[' + b",".join([b'{"data":7}'] * 40) + b"]}",
    "none": b'{"records":[]}',
    "a mark of byte order": b'\xef\xbb\xbf{"records":[{"data":1}]}',
    "something behind": b'{"records":[{"data":1}]}x',
    "cut in a string": b'{"records":[{"data":"',
    "cut in an escape": b'{"records":[{"data":"\\u00',
    "cut behind a comma": b'{"records":[{"data":1},',
    "nothing": b"",
}

_QUERIES = {
    "escapes": b"from_seq=1&limit=%31%30&x=%zz&y=%&z=+%2B",
    "equal keys": b"token=a&token=b&limit=1&limit=2",
    "no values": b"a&=&&b==c&=d",
    "numbers at the end": b"from_seq=18446744073709551615&limit=18446744073709551616&n=%D9%A1",
    "a long number": b"limit=" + b"9" * 50,
    "a cursor of a list": b"eyJhZnRlciI6ImpvYnMifQ",
    "a cursor with padding and a blank": b"eyJhZnRlciI6ImpvYnMi fQ==",
    "a cursor of a stream": b"eyJhIjoxLCJiIjoxODQ0Njc0NDA3MzcwOTU1MTYxNX0",
    "a cursor below zero": b"eyJhIjotMX0",
    "a cursor that is deep": b"W1tbW1tbW1tbW1tbW1tbW1tb",
    "no base64": b"cursor=e",
}

_SERVER = {
    "a write": _request(b"POST /v0/topics/log", b'{"records":[{"data":1,"tag":"t"}]}'),
    "a write to a queue": _request(b"POST /v0/topics/queue", b'{"records":[{"data":1,"delay_ms":5}]}'),
    "a read": _request(b"POST /v0/topics/log/diff", b'{"from_seq":0,"limit":9,"match":"t*"}'),
    "a read that waits": _request(b"POST /v0/topics/log/diff", b'{"from_seq":999999,"wait_ms":50}'),
    "a delete": _request(b"POST /v0/topics/log/delete", b'{"before_seq":2,"match":"t"}'),
    "a claim": _request(b"POST /v0/topics/queue/claim", b'{"node":"n","max":3,"lease_ms":100}'),
    "an ack": _request(b"POST /v0/topics/queue/ack", b'{"node":"n","seqs":[1,2],"lease_ids":["1","2"]}'),
    "a nack": _request(b"POST /v0/topics/queue/nack", b'{"node":"n","seqs":[1],"lease_ids":["1"],"delay_ms":5}'),
    "an extension": _request(b"POST /v0/topics/queue/extend", b'{"seqs":[1],"lease_ids":["1"],"lease_ms":100}'),
    "a stream of jobs": _request(b"GET /v0/topics/queue/work?node=n&max_in_flight=2"),
    "a topic": _request(b"PUT /v0/topics/new", b'{"cap_records":3,"discard":"reject","ttl_ms":1,"durability":"fsync"}'),
    "a queue": _request(b"PUT /v0/topics/new", b'{"type":"queue","max_deliveries":2,"dead_letter":"log"}'),
    "a router": _request(b"PUT /v0/routers/r", b'{"source":"log","dest":"new","filter":"t*"}'),
    "routers": _request(b"GET /v0/routers?prefix=r&limit=1&cursor=eyJhZnRlciI6ImEifQ"),
    "topics": _request(b"GET /v0/topics?prefix=l&limit=1"),
    "the end of a topic": _request(b"DELETE /v0/topics/new?if_empty=true"),
    "a watch": _request(b"POST /v0/watch", b'{"topics":{"log":{"from_seq":0},"queue":{}},"heartbeat_ms":1000}'),
    "a stream": _request(b"GET /v0/watch/0123456789abcdef", fields=b"Last-Event-ID: eyJsb2ciOjF9\r\n"),
    "a web socket": _request(
        b"GET /v0/ws",
        fields=b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    )
    + frame(frame_client.TEXT, b'{"op":"subscribe","topic":"log"}')
    + frame(frame_client.TEXT, b'{"op":"publish","topic":"log","records":[{"data":1}]}'),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2["a read"],
    "metrics": _request(b"GET /v0/metrics?format=json", fields=b"Accept-Encoding: gzip\r\n"),
    "a page": _request(b"GET /docs"),
    "a write of bytes": _request(b"POST /v0/topics/log", b'{"records":[{"data_base64":"/wA="},{"data":0}]}'),
    "a read from a time": _request(b"POST /v0/topics/log/diff", b'{"from":{"time":1789000000000},"limit":2}'),
    "a read of the last": _request(b"POST /v0/topics/log/diff", b'{"from":{"last":3},"max_batch_bytes":1}'),
    "a reader": _request(
        b"PUT /v0/topics/log/readers/r", b'{"delivery":"at-most-once","holds":true,"trims":true,"from_seq":0}'
    ),
    "a page of a reader": _request(b"POST /v0/topics/log/readers/r/read", b'{"limit":1,"lease_ms":100,"peek":false}'),
    "a commit of a reader": _request(b"POST /v0/topics/log/readers/r/commit", b'{"token":"page_1","seq":1}'),
    "a seek of a reader": _request(b"POST /v0/topics/log/readers/r/seek", b'{"seq":1}'),
    "readers": _request(b"GET /v0/topics/log/readers") + _request(b"GET /v0/topics/log/readers/r"),
    "the end of a reader": _request(b"DELETE /v0/topics/log/readers/r"),
    "a method that is not there": _request(b"BREW /v0/topics/log"),
    "a name that is too long": _request(b"GET /v0/topics/" + b"n" * 300),
    "a name with a zero": _request(b"GET /v0/topics/a%00b"),
}

_LANE = {
    "a write in three pieces": b"\xfe".join((_WRITE[:20], _WRITE[20:60], _WRITE[60:])),
    "a body that comes late": _WRITE.replace(b"\r\n\r\n", b"\r\n\r\n\xfe"),
    "two connections, one broken": _WRITE.replace(b"/a ", b"/t0-0 ")
    + b"\xfd"
    + _WRITE.replace(b"/a ", b"/t1-0 ").replace(b"Host:", b"Host :"),
    "bytes": _request(b"POST /v0/topics/t0-0", b'{"records":[{"data_base64":"/wA="},{"data":1}]}')
    + _request(b"POST /v0/topics/t0-0/diff", b'{"from_seq":0,"limit":9}'),
    "no base64": _request(b"POST /v0/topics/t0-0", b'{"records":[{"data_base64":"/wB="}]}'),
    "smuggled": _request(b"POST /v0/topics/t0-1", _WRITE, b"Transfer-Encoding: identity\r\n"),
}


def damaged(sample: bytes) -> dict[str, bytes]:
    """A file as it is, and with what a disk may do to it."""

    def flipped(at: int) -> bytes:
        return sample[:at] + bytes([sample[at] ^ 1]) + sample[at + 1 :]

    half = len(sample) // 2
    return {
        "whole": sample,
        "empty": b"",
        "cut by one byte": sample[:-1],
        "cut in half": sample[:half],
        "its second half": sample[half:],
        "a bit in its mark": flipped(0),
        "a bit in its middle": flipped(half),
        "a bit in its end": flipped(len(sample) - 1),
        "half of it zeros": sample[:half] + bytes(len(sample) - half),
        "twice": sample * 2,
    }


EXAMPLES: dict[str, dict[str, bytes]] = {
    "HTTP/1.1 by httptools": _HTTP1,
    "HTTP/1.1 by h11": _HTTP1,
    "HTTP/1.1 by both": _HTTP1,
    "HTTP/2": _HTTP2,
    "WebSocket frames": _FRAMES,
    "WebSocket message": _MESSAGES,
    "write body": _BODIES,
    "query": _QUERIES,
    "server": _SERVER,
    "lane": _LANE,
}

"""A small S3 server on loopback that answers with errors, hangs, or cuts bodies, as a test asks.

It passes the suite of moto's server (test_bucket.py), as far as copies use S3.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 3
"""Keys of a page of a list: few, so that lists have several."""


class S3Server(ThreadingHTTPServer):
    """A server with the bucket `bucket`. fault: "" for none; a status with a code; hang; of lists endless or
    empty, which is a list of pages without a key and without an end.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects: dict[str, bytes] = {}
        self.fault = ""
        self.faults_left = 1 << 30
        self.requests: list[tuple[str, str]] = []
        self.released = threading.Event()
        """Ends the requests that hang."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        pass  # a client that gave up


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        _, bucket, *rest = unquote(parts.path).split("/", 2)
        key = rest[0] if rest else ""
        self.server.requests.append((self.command, key))
        if self.server.fault not in ("", "endless", "empty") and self.server.faults_left:
            self.server.faults_left -= 1
            if self.server.fault == "hang":
                self.server.released.wait(30)
                self.close_connection = True
                return
            status, code = self.server.fault.split()
            self._answer(int(status), f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
        elif bucket != "bucket":
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif self.command == "GET" and not key:
            self._list({name: values[0] for name, values in parse_qs(parts.query).items()})
        elif self.command == "POST":
            keys = [part.partition("</Key>")[0] for part in body.decode().split("<Key>")[1:]]
            for gone in keys:
                self.server.objects.pop(unescape(gone), None)
            deleted = "".join(f"<Deleted><Key>{gone}</Key></Deleted>" for gone in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        else:
            self._object(key, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

    def _object(self, key: str, body: bytes) -> None:
        objects = self.server.objects
        if self.command == "PUT":
            sum_ = base64.b64encode(hashlib.sha256(body).digest()).decode()
            if self.headers.get("x-amz-checksum-sha256") != sum_:
                self._answer(400, b"<Error><Code>BadDigest</Code></Error>")
                return
            objects[key] = body
            self._answer(200, b"")
        elif self.command == "DELETE":
            objects.pop(key, None)
            self._answer(204, b"")
        elif key in objects:
            self._answer(200, objects[key])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _list(self, query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted(key for key in self.server.objects if key.startswith(prefix) and key > after)
        page, more = keys[:PAGE], len(keys) > PAGE
        if self.server.fault == "endless":
            page, more = sorted(self.server.objects)[:PAGE], True
        if self.server.fault == "empty":
            page, more = [], True
        token = f"<NextContinuationToken>{escape(page[-1] if page else 'next')}</NextContinuationToken>" if more else ""
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key])}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag></Contents>'
            for key in page
        )
        self._answer(
            200,
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{items}</ListBucketResult>".encode(),
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Yield a server that runs in a thread."""
    server = S3Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="s3", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()

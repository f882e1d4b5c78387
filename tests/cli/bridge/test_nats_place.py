"""A server of `tls://` gets nothing without TLS, and files with seeds are read before it is asked."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from topics.bridge.jetstream.jetstream_link import JetStreamLink
from topics.bridge.jetstream.nats_place import NatsPlace
from topics.errors import UsageError

pytest.importorskip("nats", reason="nats-py is not installed: `make bridge` installs it")
SEED = "SUAGURA36XTDIGZFMBSUQOVVWM2CARATMIS6GXXNZHCKQ6PAI3ZNE6MRIQ"
CREDENTIALS = f"""-----BEGIN NATS USER JWT-----
token
------END NATS USER JWT------
-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install it")


class Recording:
    """A server of NATS that keeps what each connection sends. tls: what it asks for, and makes."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.got: list[bytes] = []
        self.ended = threading.Semaphore(0)
        """Counts the connections that have ended."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with contextlib.suppress(OSError), connection:
                    self._serve(connection)
                self.ended.release()

    def _serve(self, connection: socket.socket) -> None:
        asks = b'"tls_required":true,' if self._tls else b""
        connection.sendall(b'INFO {"server_id":"s",' + asks + b'"version":"2.9.10","max_payload":1048576}\r\n')
        with self._tls.wrap_socket(connection, server_side=True) if self._tls else connection as stream:
            self.got.append(b"")
            while more := stream.recv(1 << 16):
                self.got[-1] += more
                if b"PING" in more:
                    stream.sendall(b"PONG\r\n")


def test_a_server_without_tls_gets_nothing_at_each_connection() -> None:
    """It got the password and all records in plain text."""
    server = Recording()
    place = NatsPlace.parse(f"tls://ann:s3cret@127.0.0.1:{server.port}", {"user": "bob", "password": "hunter2"})
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"^tls://127.0.0.1:{server.port} asks for no TLS, and nothing was sent"):
            JetStreamLink(place)
        server.ended.acquire()
    assert server.got == [b"", b""]


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """The server's side, whose certificate for `localhost` is its own authority: cert.pem."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


@needs_openssl
def test_a_server_with_tls_gets_the_password_within_it(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    server = Recording(tls)
    options = {"user": "bob", "password": "hunter2", "tls_hostname": "localhost"}
    JetStreamLink(NatsPlace.parse(f"tls://127.0.0.1:{server.port}", options)).close()
    server.ended.acquire()
    assert b'"pass":"hunter2"' in server.got[0].replace(b": ", b":")


@needs_openssl
def test_a_certificate_that_is_not_trusted_or_of_another_host_ends_the_bridge(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Recording(tls)
    for trusted, reason in ((False, "self.signed certificate"), (True, "IP address mismatch")):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with pytest.raises(UsageError, match=rf"has a certificate that is not trusted \(.*{reason}.*SSL_CERT_FILE"):
            JetStreamLink(NatsPlace.parse(f"tls://127.0.0.1:{server.port}", {}))
    assert server.got == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"token": ""}, "--set token is empty: give it a value, or leave it out"),
        ({"tls_hostname": "h"}, "--set tls_hostname has no effect with nats://h: use tls://HOST:PORT"),
        ({"nkeys_seed": "none"}, "--set nkeys_seed names 'none', which cannot be read (No such file or directory)"),
        ({"user_credentials": "."}, "--set user_credentials names '.', which cannot be read (Is a directory)"),
        ({"nkeys_seed": "bad"}, "--set nkeys_seed names 'bad', which has no valid seed of NATS: mend it"),
        ({"nkeys_seed": "user.creds"}, "--set nkeys_seed names 'user.creds', which has no valid seed of NATS: mend it"),
        ({"user_credentials": "seed"}, "--set user_credentials names 'seed', which is no file of credentials of NATS"),
        ({"user_credentials": "bad.creds"}, "--set user_credentials names 'bad.creds', which has no valid seed of"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_its_name(
    options: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a traceback, or a server that does not answer."""
    if "bad" in str(options) or "user.creds" in str(options):
        pytest.importorskip("nkeys")
    written_to(tmp_path, monkeypatch)
    with pytest.raises(UsageError) as caught:
        NatsPlace.parse("nats://h", options)
    assert str(caught.value).startswith(sentence)


def written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seed").write_text(f"{SEED}\n")
    Path("user.creds").write_text(CREDENTIALS)
    Path("bad").write_text("SUA")
    Path("bad.creds").write_text(CREDENTIALS.replace(SEED, "SUA"))


@pytest.mark.parametrize("options", [{"nkeys_seed": "seed"}, {"user_credentials": "user.creds"}])
def test_a_seed_needs_its_package_and_is_taken_with_it(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_to(tmp_path, monkeypatch)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "nkeys", None)
        with pytest.raises(UsageError, match="needs nkeys, which is not installed: pip install nkeys$"):
            NatsPlace.parse("nats://h", options)
    pytest.importorskip("nkeys")
    assert NatsPlace.parse("nats://h", options).options == options

"""The configurations of proxies: TLS, and server-sent events that leave as they come."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.project.packaging.served import served, wait_for
from tests.project.structure.test_tree import ROOT

PROXY = ROOT / "packaging" / "proxy"
_SECONDS = 60.0


def ask(port: int, request: str) -> ssl.SSLSocket:
    """Send a request over TLS; the socket from which its answer comes."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    raw = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
    tls = context.wrap_socket(raw, server_hostname="localhost")
    tls.sendall(request.replace("\n", "\r\n").encode())
    return tls


def received(tls: ssl.SSLSocket, until: bytes) -> bytes:
    data = b""
    while until not in data:
        part = tls.recv(65_536)
        assert part, data
        data += part
    return data


def head(method: str, path: str, port: int, body: str = "") -> str:
    lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{port}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\n".join([*lines, "", body])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is missing: apt-get install nginx-light")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
def test_nginx_passes_writes_and_each_event_at_once_over_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "topics.key", tmp_path / "topics.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port()
    with served(tmp_path) as address:
        site = (PROXY / "nginx.conf").read_text()
        for here, there in (
            ("127.0.0.1:4000", address),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/topics.pem", str(certificate)),
            ("/etc/ssl/topics.key", str(key)),
        ):
            assert here in site
            site = site.replace(here, there)
        paths = "".join(
            f"{name}_temp_path {tmp_path};" for name in ("proxy", "fastcgi", "uwsgi", "scgi", "client_body")
        )
        user = "user root;" if os.geteuid() == 0 else ""
        main = tmp_path / "main.conf"
        main.write_text(
            f"daemon off; pid {tmp_path}/pid; error_log stderr notice; {user}\n"
            f"events {{}} http {{ access_log off; {paths}\n{site} }}"
        )
        nginx = subprocess.Popen(
            ["nginx", "-p", str(tmp_path), "-e", "stderr", "-c", str(main)], stderr=subprocess.PIPE, text=True
        )
        try:
            assert nginx.stderr is not None
            wait_for(nginx.stderr, "start worker process ")
            write = '{"records":[{"data":"one"}]}'
            with ask(port, head("POST", "/v0/topics/t", port, write)) as tls:
                assert received(tls, b'"seqs":[1]').startswith(b"HTTP/1.1 201")
            with ask(port, head("POST", "/v0/watch", port, '{"topics":{"t":{}}}')) as tls:
                wid = json.loads(received(tls, b"}}").rpartition(b"\r\n\r\n")[2])["wid"]
            with ask(port, head("GET", f"/v0/watch/{wid}", port)) as events:
                assert b"event: record" in received(events, b"caught-up")
                with ask(port, head("POST", "/v0/topics/t", port, write)) as tls:
                    received(tls, b'"seqs":[2]')
                assert b'"$seq":2' in received(events, b"caught-up")
        finally:
            nginx.terminate()
            nginx.wait()


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is missing: apt-get install caddy")
def test_caddy_understands_its_file() -> None:
    done = subprocess.run(
        ["caddy", "validate", "--adapter", "caddyfile", "--config", str(PROXY / "Caddyfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

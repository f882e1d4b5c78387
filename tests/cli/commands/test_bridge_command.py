"""`topics bridge` refuses what cannot be carried in a sentence, before it asks any side."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.commands.command_runs import run
from tests.long.bridge.bridge_rate import bridge_options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--to", "redis://h"], "--to is 'redis://h': use kafka://HOST:PORT or nats://HOST:PORT"),
        (["--to", "nats://"], "--to is 'nats://', which names no host: use one like nats://localhost:4222"),
        (["--to", "nats://:4222"], "--to is 'nats://:4222', which names no host in ':4222': use one like nats://"),
        (["--to", "nats://a,b"], "--to is 'nats://a,b', which names no host in 'a,b': use one like nats://"),
        (["--to", "nats://a b"], "--to is 'nats://a b', which has a blank: use one like nats://"),
        (["--to", "nats://h:0"], "--to is 'nats://h:0', which has the port '0', and ports are from 1 to 65535: use "),
        (["--to", "nats://h:x"], "--to is 'nats://h:x', which has the port 'x', and ports are from 1 to 65535: use "),
        (
            ["--to", "tls://h:"],
            "--to is 'tls://h:', which has the port '', and ports are from 1 to 65535: use one like t",
        ),
        (["--to", "kafka://"], "--to is 'kafka://', which names no host: use one like kafka://localhost:9092"),
        (["--from", "kafka://h:1,g:99999"], "--from is 'kafka://h:1,g:99999', which has the port '99999', and ports "),
        (["--to", "kafka://h:1,"], "--to is 'kafka://h:1,', which names no host: use one like kafka://localhost:9092"),
        (["--to", "kafka://h/orders"], "--to is 'kafka://h/orders', which has a path: use one like kafka://localhost"),
        (["--to", "kafka://u:p@h"], "--to is 'kafka://h', which names a user: give credentials by --set sasl.password"),
        (
            ["--from", "nats://h", "--to", "nats://g", "--dry-run"],
            "name one other side: --to URL carries records there",
        ),
        (["--dry-run"], "name one other side: --to URL carries records there, --from URL carries them here"),
        (["--to", ""], "--to is '': use kafka://HOST:PORT or nats://HOST:PORT"),
        (["--from", "nats://h", "--to", ""], "--to is '': use kafka://HOST:PORT or nats://HOST:PORT"),
        (
            ["--to", "nats://u:p@h/path"],
            "--to is 'nats://h/path', which has a path: use one like nats://localhost:4222",
        ),
        (["--to", "nats://[::1"], "--to is no URL (Invalid IPv6 URL): use kafka://HOST:PORT or nats://HOST:PORT"),
        (
            ["--to", "nats://u:p@h:99999"],
            "--to is 'nats://h:99999', which has the port '99999', and ports are from 1 to ",
        ),
        (["--to", "nats://h", "--set", "tokn=x"], "--set tokn is no option of NATS: use one of name, "),
        (["--to", "nats://h", "--set", "user=a", "--set", "user=b"], "--set user is given twice: give it once"),
        (["--from", "nats://h", "--set", "token="], "--set token is empty: give it a value, or leave it out"),
        (["--to", "nats://h", "--set", "token"], "--set is 'token': use NAME=VALUE"),
        (["--to", "nats://h", "--oversize", "cut"], "--oversize is 'cut': use stop or skip"),
        (["--to", "nats://h", "--metrics", "here"], "--metrics is 'here': use HOST:PORT, such as 127.0.0.1:9310"),
        (["--to", "nats://h", "--metrics", f"h:{'9' * 5000}"], "--metrics is 'h:999"),
        (
            ["--to", "nats://h", "--metrics", f"{'x' * 80}.:1"],
            f"--metrics is '{'x' * 80}.:1', which cannot be listened on (",
        ),
        (["--to", "nats://h", "--stream", "a.b"], "--stream is 'a.b': use a name without blanks and without . * > / "),
        (["--to", "nats://h", "--stream", ""], "--stream is '': use a name without"),
        (["--to", "nats://h", "--prefix", "*."], "--prefix is '*.': use parts that each end with a dot, such as"),
        (["--from", "nats://h", "--prefix", "shop"], "--prefix is 'shop': use parts that each end with a dot"),
        (["--from", "nats://h", "--id", ""], "--id is '': use 1 to 200 letters, digits and . _ -"),
        (["--to", "nats://h", "--id", "a b"], "--id is 'a b': use 1 to 200 letters, digits and . _ -"),
        (["--to", "nats://h", "--partitions", "4"], "--partitions has no effect with --to nats://h: leave it out"),
        (["--from", "kafka://h", "--stream", "s"], "--stream has no effect with --from kafka://h: leave it out"),
        (["--from", "nats://h", "--replicas", "3"], "--replicas has no effect with --from nats://h: leave it out"),
        (["--to", "kafka://h", "--adopt"], "--adopt has no effect with --to kafka://h: leave it out"),
        (["--to", "nats://h", "--values", "json"], "--values has no effect with --to nats://h: leave it out"),
        (["--to", "nats://h\udcff"], r"--to is 'nats://h\udcff', which is no UTF-8: leave out what is escaped"),
        (["--from", "kafka://h\udcff"], r"--from is 'kafka://h\udcff', which is no UTF-8: leave out"),
        (["--to", "nats://h", "--stream", "\udcff"], r"--stream is '\udcff', which is no UTF-8: leave out"),
        (["--to", "nats://h", "--prefix", "\udcff."], r"--prefix is '\udcff.', which is no UTF-8: leave out"),
        (["--to", "nats://h", "--set", "token=\udcff"], r"--set is 'token=\udcff', which is no UTF-8: leave out"),
        (["--to", "nats://h", "--metrics", "\udcff:1"], r"--metrics is '\udcff:1', which is no UTF-8: leave out"),
        (["--to", "nats://h", "--data-dir", "d"], "`topics bridge` needs a running server"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: list[str], sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("nats", reason="nats-py is not installed")
    ran = run(["bridge", "--topics", "orders*", *options], tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith(f"topics: {sentence}"), ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--once", "--dry-run"])
def test_a_side_that_is_away_ends_a_bridge_that_is_to_end(option: str, tmp_path: Path) -> None:
    """It asked again forever, and a look had no remedy."""
    pytest.importorskip("nats", reason="nats-py is not installed")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{nobody.getsockname()[1]}"
        ran = run(["bridge", "--topics", "orders", "--to", url, option, "--timeout", "0.1"], tmp_path)
    assert (ran.code, ran.out) == (1, "")
    last = ran.err.splitlines()[-1]
    assert last.startswith(f"topics: {url} does not answer: ")
    once = "; nothing was carried for 0.1 s (--timeout): start what does not answer, and run this again, which "
    assert (once if option == "--once" else ": start what does not answer, or mend --url, --to or --from") in last


@pytest.mark.parametrize("to", ["kafka://h", "nats://h"])
def test_the_measurement_of_rates_gives_a_side_options_that_have_an_effect(to: str) -> None:
    assert bridge_options(to, 1).to == to

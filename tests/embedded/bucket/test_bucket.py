"""An object store as copies use it: one suite for that of the tests, for a small S3 server, and for moto's.

Each kind of fault has its sentence: a store that fails, one that is slow, and one that refuses.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")

from tests.cli.fork_server import VERIFY
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.embedded.bucket.s3_server import S3Server, s3_server
from topics.embedded.bucket.bucket import Bucket, BucketOptions, in_thread, is_bucket_url, open_bucket
from topics.embedded.bucket.bucket_errors import FailedBucketError, SlowBucketError
from topics.errors import StorageError, UsageError

QUICK = BucketOptions(region="us-east-1", timeout_s=30, retries=2, retry_for_s=60)
PATIENT = BucketOptions(region="us-east-1")


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of moto's server, with the bucket `bucket`."""
    pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    output = tmp_path_factory.mktemp("moto") / "output"
    with output.open("wb") as opened:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=opened, stderr=opened)
    try:
        while not (found := re.search(r"Running on (http://\S+)", output.read_text())):
            assert process.poll() is None, output.read_text()
            time.sleep(0.02)
        urllib.request.urlopen(urllib.request.Request(f"{found[1]}/bucket", method="PUT"))
        yield found[1]
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(params=["memory", "small", pytest.param("moto", marks=pytest.mark.slow)])
def empty(request: pytest.FixtureRequest) -> Bucket:
    """An empty place in a bucket."""
    if request.param == "memory":
        return MemoryBucket()
    endpoint = request.getfixturevalue("server").url if request.param == "small" else request.getfixturevalue("moto")
    options = PATIENT._replace(endpoint=endpoint)
    return open_bucket(f"s3://bucket/{request.node.name}/", options)


def test_objects_are_written_listed_read_and_removed(empty: Bucket) -> None:
    async def run() -> None:
        assert await empty.sizes("a") == {}
        assert await empty.get("a/1") is None
        for number in range(7):
            await empty.put(f"a/{number}", bytes(number))
        await empty.put("ab/1", b"not below a")
        await empty.put("a/b=c d/+&é", b"a name")
        assert await empty.sizes("a") == {**{f"a/{n}": n for n in range(7)}, "a/b=c d/+&é": 6}
        assert await empty.get("a/b=c d/+&é") == b"a name"
        assert await empty.get("a/0") == b""
        await empty.put("a/1", b"other")
        assert await empty.get("a/1") == b"other"
        await empty.delete(["a/1", "a/2", "a/not there"])
        await empty.delete([])
        assert sorted(await empty.sizes("a")) == ["a/0", "a/3", "a/4", "a/5", "a/6", "a/b=c d/+&é"]

    asyncio.run(run())


def failed(
    server: S3Server, fault: str, options: BucketOptions = QUICK, *, bucket: str = "bucket"
) -> list[StorageError]:
    """Return the errors of a write, a read, a list and a removal."""
    server.fault = fault
    opened = open_bucket(f"s3://{bucket}/prefix", options._replace(endpoint=server.url))

    async def run() -> list[StorageError]:
        found = []
        for call in (opened.put("k", b"x"), opened.get("k"), opened.sizes("k"), opened.delete(["k"])):
            with pytest.raises(StorageError) as caught:
                await call
            found.append(caught.value)
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("500 InternalError", r"was answered 500 InternalError 3 times: the store fails: try again later"),
        ("503 SlowDown", r"was answered 503 SlowDown 3 times: the store is busy: .*fewer --parallel"),
        ("403 SignatureDoesNotMatch", r"was refused with 403 SignatureDoesNotMatch: check AWS_ACCESS_KEY_ID"),
        ("400 InvalidRequest", r"was answered 400 InvalidRequest: check --endpoint, --region and the URL"),
    ],
)
def test_a_store_that_fails_is_named_with_its_answer_and_the_remedy(server: S3Server, fault: str, said: str) -> None:
    errors = failed(server, fault)
    for error, action in zip(errors, ("write", "read", "list", "removal"), strict=True):
        assert type(error) is FailedBucketError
        assert re.match(f"s3://bucket/prefix/k: a {action} {said}", str(error)), error
        assert "\n" not in str(error)


def test_a_store_that_does_not_answer_is_slow(server: S3Server) -> None:
    server.fault = "hang"
    bucket = open_bucket("s3://bucket/prefix", QUICK._replace(endpoint=server.url, timeout_s=0.1, retries=1))
    with pytest.raises(
        SlowBucketError, match=r"s3://bucket/prefix/k: slow: no answer to a write within 0.1 s, 2 times: .*"
    ):
        asyncio.run(bucket.put("k", b"x"))


def test_a_list_without_an_end_is_an_error(server: S3Server) -> None:
    """Every command waited for its last page, and kept all of them in memory."""
    server.objects["prefix/k/1"] = b"x"
    server.fault = "endless"
    bucket = open_bucket("s3://bucket/prefix", QUICK._replace(endpoint=server.url))
    with pytest.raises(FailedBucketError, match="s3://bucket/prefix/k: the list has an object twice, so it may never"):
        asyncio.run(bucket.sizes("k"))


def test_a_list_of_empty_pages_without_an_end_is_slow(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client follows them inside of one call, so every command hung."""
    server.fault = "empty"
    bucket = open_bucket("s3://bucket/prefix", PATIENT._replace(endpoint=server.url))
    monkeypatch.setattr(bucket, "_page_s", 0.1)
    said = "s3://bucket/prefix/k: slow: the list gave no object for 0.1 s, as if its pages had no end: check --endpoint"
    with pytest.raises(SlowBucketError, match=said):
        asyncio.run(bucket.sizes("k"))
    server.fault = ""


def test_a_request_that_fails_is_repeated(server: S3Server) -> None:
    server.fault, server.faults_left = "503 SlowDown", 2
    bucket = open_bucket("s3://bucket/prefix", PATIENT._replace(endpoint=server.url))
    asyncio.run(bucket.put("k", b"x"))
    assert server.objects == {"prefix/k": b"x"}
    assert len(server.requests) == 3


def test_a_bucket_that_does_not_exist_is_named(server: S3Server) -> None:
    write, read, listed, _ = failed(server, "", bucket="other")
    for error in (write, read, listed):
        assert str(error) == "s3://other/prefix/k: there is no such bucket: create it, or mend the URL"


def test_a_store_that_is_not_there_is_named() -> None:
    bucket = open_bucket("s3://bucket", QUICK._replace(endpoint="http://127.0.0.1:1", retries=0))
    with pytest.raises(FailedBucketError, match="s3://bucket/k: no connection for a write, once: check --endpoint"):
        asyncio.run(bucket.put("k", b"x"))


def test_urls_that_name_no_bucket_are_refused() -> None:
    assert is_bucket_url("--to", "s3://bucket/prefix")
    assert not is_bucket_url("--to", "/backup/topics")
    with pytest.raises(
        UsageError,
        match=r"--to is 'gs://b', which is neither a directory nor a bucket: use a path, or s3://BUCKET/PREFIX",
    ):
        is_bucket_url("--to", "gs://b")
    for url in ("s3://", "s3:///prefix", "s3://bucket/a//b", "s3://bucket/../b"):
        with pytest.raises(UsageError, match="names no place in a bucket: use s3://BUCKET/PREFIX"):
            open_bucket(url, QUICK)
    with pytest.raises(UsageError, match="--endpoint is 'example.com': use a URL"):
        open_bucket("s3://bucket", QUICK._replace(endpoint="example.com"))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError, match=r"s3://bucket needs the package obstore: pip install 'topics-log\[s3\]'"):
        open_bucket("s3://bucket", QUICK)


def test_the_command_copies_follows_verifies_and_restores(
    server: S3Server, backups: list[Path], archives: list[Path], tmp_path: Path
) -> None:
    """In processes of their own: obstore's threads do not survive a fork."""
    environment = {
        **VERIFY,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.url,
    }

    def topics(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "topics", *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert ran.returncode == code, ran
        return ran.stdout + ran.stderr

    shutil.copytree(archives[0], tmp_path / "archive")
    command = [sys.executable, "-m", "topics", "copy-backup", "archive", "s3://bucket/a", "--every", "0.1"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert "1 backup new" in follower.stdout.readline()
        shutil.copytree(archives[2], tmp_path / "archive", dirs_exist_ok=True)
        assert " new, " in follower.stdout.readline()
        follower.terminate()
        assert follower.wait() == -signal.SIGTERM
    said = topics("restore", "--from", "s3://bucket/a", "--to", "new")
    assert "records of" in said
    assert "from s3://bucket/a; each topic leaves out at least" in said
    assert not (tmp_path / "new.fetched").exists()
    said = topics("backup", "--data-dir", "new", "--to", "s3://bucket/b")
    assert "s3://bucket/b: 1 backup new" in said
    (key,) = [key for key in server.objects if key.startswith("b/pieces/")][:1]
    server.objects[key] = bytes(len(server.objects[key]) - 1)
    said = topics("verify", "s3://bucket/b", code=1)
    assert f"damage: s3://bucket/{key} has" in said
    assert "1 damaged: `topics copy-backup --reread` sends them again" in said


def test_a_panic_of_the_client_ends_the_call() -> None:
    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException("invalid port number")

    with pytest.raises(StorageError, match="the client of the object store: invalid port number"):
        asyncio.run(asyncio.wait_for(in_thread(panic), 5))

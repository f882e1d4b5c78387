"""Values for a bucket are checked before the bucket is asked, and nothing of others is removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.commands.command_runs import run
from topics.cli.backups.bucket import in_thread
from topics.cli.backups.bucket_calls import fetched
from topics.errors import StorageError

NOWHERE = ("--endpoint", "http://127.0.0.1:9", "--retries", "0")


def test_a_restore_from_a_bucket_leaves_a_directory_of_others(tmp_path: Path) -> None:
    (tmp_path / "new.fetched").mkdir()
    (tmp_path / "new.fetched" / "file").write_text("precious")
    ran = run(["restore", "--from", "s3://b/p", "--to", str(tmp_path / "new"), *NOWHERE], tmp_path)
    assert ran.code != 0
    assert "new.fetched exists, and a restore from a bucket makes it anew: remove it if " in ran.err
    assert (tmp_path / "new.fetched" / "file").read_text() == "precious"


def test_a_directory_that_was_made_meanwhile_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(_url: str, _options: object) -> object:
        (tmp_path / "new.fetched").mkdir()
        return None

    monkeypatch.setattr("topics.cli.backups.bucket_calls.look_at_copy", look)
    monkeypatch.setattr("topics.cli.backups.bucket_calls.needed_parts", lambda *_, **__: ("", None))
    with pytest.raises(FileExistsError), fetched("s3://b/p", str(tmp_path / "new"), None, None, all_bases=False):  # type: ignore[arg-type]
        pass
    assert (tmp_path / "new.fetched").is_dir()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--endpoint", "http://127.0.0.1:9/ x"], "--endpoint is 'http://127.0.0.1:9/ x': use a URL"),
        (["--endpoint", "http://user:pw@127.0.0.1:99999"], "--endpoint is 'http://user:pw@127.0.0.1:99999': use a URL"),
        (["--endpoint", "http://"], "--endpoint is 'http://': use a URL"),
        (["--region", "a\nb"], r"--region is 'a\nb': use a name, such as eu-central-1"),
        (["--region", ""], "--region is '': use a name, such as eu-central-1"),
        (["--request-timeout", "inf"], "--request-timeout is 'inf': "),
        (["--retry-for", "1e300"], "--retry-for is '1e300': "),
        (["--retries", "9" * 23], f"--retries is '{'9' * 23}': "),
    ],
)
def test_a_value_that_no_request_can_have_is_refused_in_one_sentence(
    options: list[str], sentence: str, tmp_path: Path
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p", *options], tmp_path)
    assert ran.code != 0
    assert sentence in ran.err
    assert ran.err.count("\n") == 1, ran.err


def test_the_end_of_a_line_in_a_key_is_refused_without_the_key(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p", *NOWHERE], tmp_path, env={"AWS_SECRET_ACCESS_KEY": "s3cret\n"})
    assert "AWS_SECRET_ACCESS_KEY has a character that no key has" in ran.err
    assert "s3cret" not in ran.err


def test_a_panic_of_the_client_ends_the_call() -> None:
    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException("invalid port number")

    with pytest.raises(StorageError, match="the client of the object store: invalid port number"):
        asyncio.run(asyncio.wait_for(in_thread(panic), 5))


def test_an_endpoint_of_a_variable_is_named_by_it(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p"], tmp_path, env={"AWS_ENDPOINT_URL": "zz"})
    assert "AWS_ENDPOINT_URL is 'zz': use a URL" in ran.err

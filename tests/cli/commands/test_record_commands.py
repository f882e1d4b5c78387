"""Records of a named reader, as `topics tail --reader` prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import topics
from tests.cli.commands.command_runs import run
from tests.embedded.conftest import SMALL
from topics.cli.exit_codes import GAP
from topics.common.reader_tail import ReaderTail, tail_reader
from topics.errors import RequestError


class LateOnce:
    """A log whose readers take longer to print their first page than its lease lasts."""

    def __init__(self, log: topics.Log) -> None:
        self._log = log
        self.is_late = True

    def reader(self, topic: str, name: str) -> Any:
        reader: Any = self._log.reader(topic, name)
        commit = reader.commit

        def commit_late() -> int:
            if self.is_late:
                self.is_late = False
                reader.seek(reader.committed)
                raise RequestError("reader_fenced", "the page's lease has ended")
            return int(commit())

        reader.commit = commit_late
        return reader


def test_a_page_that_was_printed_too_late_is_printed_again(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1, 2])
        late: Any = LateOnce(log)
        tail = ReaderTail(lambda: False, "raise", ends=True, commits=True)
        printed = [record.data for record in tail_reader(lambda: late.reader("t", "r"), tail)]
        assert printed == [1, 2, 1, 2]
        assert log.readers("t")[0].committed == 2


def test_a_gap_names_only_options_that_the_command_has(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.put_topic("t", cap_records=2)
        log.append("t", [1])
        log.reader("t", "r").close()
        log.append("t", [2, 3, 4])
    lost = "topics: records 1 to 2 of t were lost (cap): add --skip-gaps\n"
    for command in (["get", "t", "1"], ["tail", "t", "--reader", "r"], ["tail", "t*", "--after", "0"]):
        ran = run([*command, "--data-dir", str(data)], tmp_path)  # --after would be of all topics
        assert (ran.code, ran.err) == (GAP, lost)

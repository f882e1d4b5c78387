"""What HTTP, its lane and WebSockets say alike is written down once; ARCHITECTURE.md says where."""

from __future__ import annotations

import re

from tests.project.test_one_read import TOPICS, called, places


def test_the_texts_of_a_write_s_answer_stand_in_one_place() -> None:
    """C gets them when the scanner is made. What else has such members is described or parsed, not answered."""
    for text in ("deduped", "wal_append_ms", "throttle_wait_ms"):
        shown = re.compile(rf'\\?"{text}\\?":')
        files = (*TOPICS.rglob("*.py"), *TOPICS.rglob("*.c"), *TOPICS.rglob("*.h"))
        found = {str(path.relative_to(TOPICS)) for path in files if shown.search(path.read_text())}
        assert found == {"engine/values/write_answer.py"}, text


def test_the_times_of_a_write_are_worked_out_in_one_place() -> None:
    assert places(".", called("_throttle_wait")) == {"engine/values/write_answer.py"}

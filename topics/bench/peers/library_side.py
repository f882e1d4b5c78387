"""The library of this package as a side: `topics.open` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from topics import __version__
from topics.bench.load.load_client import count_labels
from topics.bench.outcome import BenchCheck
from topics.bench.peers.in_process import Calls, InProcessSide, record_texts
from topics.bench.workload import NEVER, Case
from topics.config import OPTIONAL, Config, is_on
from topics.embedded.log import Log
from topics.embedded.opening import open_log

TOPIC = "bench"
PAGE = 50_000


class LibrarySide(InProcessSide):
    """settings: those of the workload and of --set, as TOPICS_* variables."""

    name = "topics"

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.settings = settings or {}

    def version(self) -> str:
        return f"topics {__version__}, the library"

    @contextmanager
    def opened(self, case: Case, scratch: Path) -> Iterator[Calls]:
        workload = case.workload
        spec = workload.loads[0]
        settings = {**workload.server, **self.settings}
        with open_log(str(scratch / "log"), **library_settings(settings)) as log:
            log.put_topic(TOPIC, durability=workload.topic.durability)  # type: ignore[arg-type]  # it was checked

            def prepare(numbers: range) -> Callable[[], object]:
                texts = record_texts(spec, numbers)
                if spec.call == "append_many":
                    return partial(log.append_many, TOPIC, texts)
                return partial(log.append, TOPIC, [json.loads(text) for text in texts])

            yield Calls(prepare, lambda written: [_read_back(log, written, spec.bytes)])


def library_settings(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return TOPICS_* variables as the settings that the library takes."""
    defaults, found = Config(), dict[str, Any]()
    for variable, text in variables.items():
        name = variable.removeprefix("TOPICS_").lower()
        default = getattr(defaults, name)
        if isinstance(default, bool):
            found[name] = is_on(text)
        elif name in OPTIONAL and text == NEVER:
            found[name] = None
        else:
            is_text = isinstance(default, str)  # also one like `auto` or a number
            found[name] = text if is_text else _value(text)
    return found


def _value(text: str) -> object:
    """Return the value of a setting that is no text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_back(log: Log, written: int, size: int) -> BenchCheck:
    """Read all records, count each number, and compare the bytes of each."""
    seen = np.zeros(max(1, written), np.uint8)
    position = altered = 0
    while True:
        page = log.columns(TOPIC, position, limit=PAGE)
        if not len(page.seq):
            break
        altered += count_labels(bytes(page.payloads), seen, (size,)).altered
        position = page.next_from_seq
    once = int(np.count_nonzero(seen[:written] == 1))
    name = "every acknowledged record is read back once"
    detail = f"{written:,} acknowledged, {once:,} there once, {altered:,} altered"
    return BenchCheck(name, once == written and not altered, detail)

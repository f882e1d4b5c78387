"""Metrics pages of several cores summed to one."""

from __future__ import annotations

import json

from topics.http.spanning.summed_pages import LINES_A_STEP, SHOWN, SummedPages, summed_json


def page_of(families: dict[str, dict[str, float]]) -> bytes:
    """families: labels to value, by name; labels are "" or "{...}"."""
    lines: list[str] = []
    for name, samples in families.items():
        lines += [f"# HELP {name} Text of {name}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value}" for labels, value in samples.items()]
    return "\n".join([*lines, ""]).encode()


def summed(*pages: bytes | None) -> tuple[dict[str, float], list[str], int]:
    """Samples, heads, and the number of steps. None: the core is away."""
    joined, steps = SummedPages(), 0
    for core, page in enumerate(pages):
        if page is None:
            joined.note_away(core)
        else:
            steps += sum(1 for _ in joined.add(core, page))
    work = joined.text()
    while True:
        try:
            next(work)
        except StopIteration as end:
            lines = end.value.decode().splitlines()
            break
        steps += 1
    samples = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    assert len({name for name, _, _ in samples}) == len(samples), "a sample is there twice"
    return {name: float(value) for name, _, value in samples}, [each for each in lines if each.startswith("#")], steps


def test_counters_are_sums_and_states_those_of_the_worst_core() -> None:
    """R-CORE-3."""
    first = page_of({
        "topics_topics": {"": 3},
        "topics_topics_by_class": {'{class="disk"}': 2, '{class="fsync"}': 1},
        "topics_ready": {"": 1},
        "topics_disk_full": {"": 0},
        "topics_uptime_ms": {"": 500},
        "process_resident_memory_bytes": {"": 1e7},
    })  # fmt: skip
    second = page_of({
        "topics_topics": {"": 4},
        "topics_topics_by_class": {'{class="disk"}': 4},
        "topics_ready": {"": 0},
        "topics_disk_full": {"": 1},
        "topics_uptime_ms": {"": 400},
        "process_resident_memory_bytes": {"": 2e7},
    })  # fmt: skip
    samples, heads, _ = summed(first, second)
    assert samples == {
        "topics_topics": 7,
        'topics_topics_by_class{class="disk"}': 6,
        'topics_topics_by_class{class="fsync"}': 1,
        "topics_ready": 0,
        "topics_disk_full": 1,
        "topics_uptime_ms": 500,
        "process_resident_memory_bytes": 3e7,
        'topics_core_ready{core="0"}': 1,
        'topics_core_ready{core="1"}': 0,
        'topics_core_topics{core="0"}': 3,
        'topics_core_topics{core="1"}': 4,
        'topics_core_resident_memory_bytes{core="0"}': 1e7,
        'topics_core_resident_memory_bytes{core="1"}': 2e7,
    }
    assert len(heads) == len(set(heads))


def test_without_a_core_there_are_no_sums() -> None:
    """R-CORE-3."""
    samples, _, _ = summed(None, page_of({"topics_topics": {"": 4}, "topics_ready": {"": 1}}))
    assert samples == {
        'topics_core_ready{core="0"}': 0,
        'topics_core_ready{core="1"}': 1,
        'topics_core_topics{core="1"}': 4,
    }


def test_a_page_shows_as_many_topics_and_readers_as_that_of_one_core_in_steps() -> None:
    """R-CORE-3, 12.3: the first thousand, in all families the same ones."""

    def page(first: int) -> bytes:
        names = [f't{number:05}"' for number in range(first, first + 2 * SHOWN, 2)]
        of_topics = {f'{{topic="{name}}}': 1.0 for name in names}
        of_readers = {f'{{topic="{name},reader="r"}}': 1.0 for name in names}
        families = {"topics_topic_head_seq": of_topics, "topics_topic_bytes_live": of_topics}
        families["topics_topic_queue_ready"] = dict(list(of_topics.items())[-600:])
        return page_of(families | {"topics_topic_metrics_truncated": {"": 0}, "topics_reader_lag": of_readers})

    samples, _, steps = summed(page(0), page(1))

    def shown(family: str) -> list[str]:
        return sorted(each.partition("=")[2] for each in samples if each.startswith(family))

    assert shown("topics_topic_head_seq") == [f'"t{number:05}"}}' for number in range(SHOWN)]
    assert shown("topics_topic_bytes_live") == shown("topics_topic_head_seq")
    assert shown("topics_topic_queue_ready") == [f'"t{number:05}"}}' for number in range(800, SHOWN)]
    assert len([each for each in samples if each.startswith("topics_reader_lag{")]) == SHOWN
    assert samples["topics_topic_metrics_truncated"] == 1
    assert steps >= 2 * 3 * SHOWN // LINES_A_STEP


def test_the_short_form_is_summed_too() -> None:
    """R-CORE-3."""
    wal = {"fsyncs": 2, "queue_depth_peak": 5, "read_only": False}
    first = {"topics": 3, "ready": True, "replay_progress": 1.0, "uptime_ms": 10, "wal": wal}
    second = {"topics": 4, "ready": False, "replay_progress": 0.5, "uptime_ms": 7, "wal": wal | {"read_only": True}}
    joined = json.loads(summed_json([json.dumps(each).encode() for each in (first, second)]))
    wal = {"fsyncs": 4, "queue_depth_peak": 5, "read_only": True}
    assert joined == {"topics": 7, "ready": False, "replay_progress": 0.5, "uptime_ms": 10, "wal": wal}

"""The passes that perf.live reads from a trace: time outside of the kernel, from receive to answer."""

from __future__ import annotations

from perf.live import LivePass, figures_of, live_passes, traced_events

TRACE = """
  7 1.000000000: raw_syscalls:sys_enter: NR 426 (3, 0)
  7 1.000100000: raw_syscalls:sys_exit: NR 426 = 1
  8 1.000101000: raw_syscalls:sys_enter: NR 44 (1, 2)
  7 1.000103000: raw_syscalls:sys_enter: NR 18 (4)
  7 1.000150000: raw_syscalls:sys_exit: NR 18 = 512
  7 1.000151000: PERF_RECORD_SWITCH OUT preempt next pid/tid: 9/9
  7 1.000950000: PERF_RECORD_SWITCH IN prev pid/tid: 9/9
  7 1.000954000: raw_syscalls:sys_enter: NR 44 (5)
  7 1.000990000: raw_syscalls:sys_exit: NR 44 = 80
  7 1.000992500: raw_syscalls:sys_enter: NR 426 (3, 0)
  7 1.000993000: PERF_RECORD_SWITCH OUT next pid/tid: 0/0
  7 1.002000000: PERF_RECORD_SWITCH IN prev pid/tid: 0/0
  7 1.002001000: raw_syscalls:sys_exit: NR 426 = 1
  7 1.002004000: raw_syscalls:sys_enter: NR 44 (5)
""".splitlines()


def rounded(passes: list[LivePass]) -> list[tuple[float, float, tuple[str, ...]]]:
    return [(round(one.to_answer, 3), round(one.after, 3), one.calls) for one in passes]


def test_neither_system_calls_nor_the_time_without_a_core_count() -> None:
    """3 us before the write, 1 and 4 around a preemption; a pass without its end is none."""
    assert rounded(live_passes(traced_events(TRACE, 7))) == [(8.0, 2.5, ("pwrite64",))]
    assert live_passes(traced_events(TRACE, 8)) == []


def test_a_call_of_the_library_is_between_two_marks() -> None:
    marks = [line.replace("NR 426", "NR 110").replace("NR 44", "NR 110") for line in TRACE]
    assert rounded(live_passes(traced_events(marks, 7), "getppid", "getppid")) == [
        (8.0, 0.0, ("pwrite64",)),
        (2.5, 0.0, ()),
        (3.0, 0.0, ()),
    ]


def test_the_tracing_is_subtracted_for_each_stretch_between_two_calls() -> None:
    usual = [LivePass(8.0, 2.0, ("pwrite64",))] * 12
    figures = figures_of([[*usual, LivePass(90.0, 2.0, ())]], 0.5)
    assert (figures.to_answer, figures.after, figures.calls) == ([7.0], [1.5], ("pwrite64",))
    assert (round(figures.p90, 3), round(figures.share, 3)) == (7.0, 0.923)

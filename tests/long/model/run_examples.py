"""Run so many examples of so many steps."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.long.model.rule_machine import Machine
from tests.long.model.server_host import Host, LiveHost, SimHost


class Simulated(Machine):
    def host_of(self, seed: int) -> Host:
        return SimHost(seed)


def run_simulated(examples: int, steps: int, seed: int | None = None) -> None:
    """seed: of the choices; None: the same every time."""
    _run(Simulated, examples, steps, seed)


def run_live(directory: Path, examples: int, steps: int, restarts_max: int, seed: int | None = None) -> None:
    """restarts_max: of one example."""
    host = LiveHost(directory, restarts_max)

    class Live(Machine):
        def host_of(self, seed: int) -> Host:
            return host

    try:
        _run(Live, examples, steps, seed)
    finally:
        host.end_all()


def _run(machine: type[Machine], examples: int, steps: int, seed: int | None) -> None:
    machine.counts.clear()
    machine.failures.clear()
    if seed is not None:
        machine._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    try:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                derandomize=seed is None,
                phases=[Phase.generate],
                print_blob=False,
            ),
        )
    except Flaky as error:
        raise (machine.failures or [error])[0] from error

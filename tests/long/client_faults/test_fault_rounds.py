"""A kill beside clients, so that the tool does not rot; `make client-faults` has 1,000."""

from pathlib import Path

from tests.long.client_faults.fault_rounds import FOLLOWED, JOBS, SOON, FaultOptions, FaultRun
from tests.long.client_faults.faulty_proxy import ProxyFault


def test_clients_of_a_killed_server_behind_a_faulty_network_lose_and_double_nothing(tmp_path: Path) -> None:
    held = (ProxyFault.HOLD_ANSWER,)  # it takes a time limit of the client
    options = FaultOptions(
        rounds=1,
        seed=3,
        life_s=0.0,
        least=5,
        pause_s=0.02,
        longest_delay_s=0.01,
        passes=9,
        without=held,
        attempt_timeout=50.0,
    )
    counts = FaultRun(tmp_path, options).run()
    assert counts["kills"] == 1
    for fault in ProxyFault:
        assert (counts[fault.value] > 0) == (fault not in held), fault
    assert not [topic for topic in (*FOLLOWED, SOON, JOBS) if counts[f"unknown of {topic}"]]

"""The seed decides what the proxy does."""

from tests.long.client_faults.faulty_proxy import FaultDeck, ProxyFault


def test_a_seed_decides_all_faults_and_each_comes_once_in_a_deck() -> None:
    held = (ProxyFault.HOLD_ANSWER,)
    one, other = (FaultDeck(7, 3, held) for _ in range(2))
    drawn = [one.draw() for _ in range(24)]
    assert drawn == [other.draw() for _ in range(24)]
    faults = [fault for fault in ProxyFault if fault not in (*held, ProxyFault.PASS)]
    for deck in (drawn[:12], drawn[12:]):
        assert sorted(draw.fault.value for draw in deck if draw.fault is not ProxyFault.PASS) == sorted(
            fault.value for fault in faults
        )

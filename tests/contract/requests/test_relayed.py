"""The contract with each request for one topic relayed to another core, which is the server itself.

A part is in every run, and this module in `make variants`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.contract.queues import test_attempts, test_delays, test_queues, test_redrive, test_waiting_claims, test_work
from tests.contract.records import (
    test_data_model,
    test_deletion_and_nodes,
    test_filters,
    test_idempotency,
    test_incarnations,
    test_producers,
    test_readers,
    test_reads,
    test_record_ttl,
    test_retention,
    test_sequence,
    test_topics,
    test_writes,
)
from tests.contract.requests import (
    test_auth,
    test_cors,
    test_http2,
    test_long_bodies,
    test_requests,
    test_responses,
    test_strict,
)
from tests.contract.streams import test_filtered_streams, test_prefixes, test_watch, test_websocket

MODULES = (
    test_attempts,
    test_delays,
    test_queues,
    test_redrive,
    test_waiting_claims,
    test_work,
    test_data_model,
    test_deletion_and_nodes,
    test_filters,
    test_idempotency,
    test_incarnations,
    test_producers,
    test_readers,
    test_reads,
    test_record_ttl,
    test_retention,
    test_sequence,
    test_topics,
    test_writes,
    test_auth,
    test_cors,
    test_http2,
    test_long_bodies,
    test_requests,
    test_responses,
    test_strict,
    test_prefixes,
    test_watch,
    test_websocket,
    test_filtered_streams,
)


LATER = frozenset(module.__name__ for module in MODULES if module not in {test_long_bodies, test_reads, test_responses})
"""Modules of which most is in others, too."""
LEFT_OUT = {
    "test_checks_come_before_the_stream": "the one core counts each of its streams twice",
    "test_streams_are_capped_and_give_their_place_back": "likewise",
    "test_replies_come_in_the_order_of_the_commands": "it counts deliveries before an unsubscribe, which may be none",
    "test_a_topic_made_again_is_whole_for_a_client_that_did_not_read": "the one core has the prefix, not the other one",
    "test_no_seq_names_two_records_of_one_incarnation": "it cuts the power in a pass that is another one here",
    "test_a_stop_says_goaway_and_answers_what_is_under_way": "it asks in a pass in which this connection has ended",
}


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"relayed": True}


def _borrow(module: ModuleType) -> None:
    for name, test in vars(module).items():
        if name.startswith("test_") and name not in LEFT_OUT:
            globals()[f"{name}_relayed"] = test


keyed, shared, key_file, changing = test_auth.keyed, test_auth.shared, test_auth.key_file, test_auth.changing
lossy = test_retention.lossy

for _module in MODULES:
    _borrow(_module)

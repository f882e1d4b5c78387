"""The tests of the contract that are not for a server of several cores, each with the rule that says why.

`pytest tests/contract --live --cores N` leaves them out (`make cores-contract CORES=N`). What a test says of the order
or of the limits of several topics may hold by chance, if they have one core, so those that pass at times are here, too.
"""

from __future__ import annotations

import pytest

from tests.contract.world.answer import Answer

BETWEEN = "R-CORE-11: a router between two cores for a class that may lose is refused"
"""A test ends with the first refusal, because which topics share a core depends on the number of cores."""
SHARES = "R-CORE-7: of this limit each core has a share of its own, and refuses at it"
READINESS = "R-CORE-1, R-CORE-2: readiness and lists name the core that is not ready, or stops"
ROUTERS = "R-CORE-7: a router without room asks other cores, and finds it at its next try"
PLACES = "R-CORE-10: each core takes in topics of its own, up to its share of the places"
ORDER = "R-CORE-8: topics of two cores have no order among themselves"
WAITS = "R-CORE-5: a wait is counted by each core of its topics"
PASSED = "R-CORE-8: it counts deliveries before an unsubscribe, of which those of another core may be none"
STOPS = "R-CORE-5: while a core stops, a wait is not_ready"
CHECKS = "R-CORE-13: whether a destination is there, and has another source, is asked last"
WRITTEN = "R-CORE-11: copies on another core than their source are written out there"
ARCHIVE = "R-CORE-19: a request for the archive of several cores names one"
ON_ITS_WAY = "R-CORE-15: a job whose dead letter another core cannot take stays on its way"
NAMES = "R-CORE-13: the core of a destination knows no key, and names none of its routers"
ARRIVAL = "no rule orders requests of two connections, each of which may come to another core"

LEFT_OUT = {
    "test_auth.test_a_client_that_leaves_frees_its_place": SHARES,
    "test_auth.test_refusals_of_routers_name_what_the_key_may_name": NAMES,
    "test_auth.test_requests_in_flight_of_a_key_have_a_cap": SHARES,
    "test_hostile_clients.test_a_key_that_leaves_in_every_way_has_no_request_in_flight": SHARES,
    "test_prefixes.test_a_connection_takes_in_as_many_as_a_session": PLACES,
    "test_prefixes.test_a_free_place_is_for_the_first_that_was_left_out": PLACES,
    "test_prefixes.test_a_name_that_is_left_makes_room_for_a_topic_with_a_prefix": PLACES,
    "test_prefixes.test_a_name_that_leaves_its_place_lets_another_topic_in": PLACES,
    "test_prefixes.test_a_session_takes_in_the_topics_that_are_there": ORDER,
    "test_prefixes.test_named_topics_take_no_place_of_those_with_a_prefix": PLACES,
    "test_prefixes.test_what_is_beyond_the_limit_is_reported": PLACES,
    "test_queues.test_a_copy_that_cannot_be_written_leaves_the_job": ON_ITS_WAY,
    "test_routers.test_copies_stay_out_of_the_log": WRITTEN,
    "test_routers.test_the_checks_of_a_router_come_in_their_order": CHECKS,
    "test_routers.test_the_quota_holds_routers_back_like_a_full_destination": ROUTERS,
    "test_start_and_stop.test_a_draining_server_says_so_on_open_connections_and_takes_no_new_ones": READINESS,
    "test_start_and_stop.test_nothing_is_served_while_the_log_is_recovered": READINESS,
    "test_topics.test_a_patch_of_a_topic_that_is_being_deleted_finds_none": ARRIVAL,
    "test_wait.test_a_stopping_server_answers_at_once": STOPS,
    "test_wait.test_a_topic_created_again_before_any_look_ends_the_wait": ARRIVAL,
    "test_wait.test_who_leaves_ends_the_wait": WAITS,
    "test_watch.test_a_session_may_begin_elsewhere": ORDER,
    "test_watch.test_names_that_sessions_keep_are_bounded_together": SHARES,
    "test_watch.test_one_key_cannot_take_the_sessions_of_others": SHARES,
    "test_websocket.test_a_subscription_may_begin_elsewhere": ORDER,
    "test_websocket.test_a_tail_begins_at_the_head": ORDER,
    "test_websocket.test_replies_come_in_the_order_of_the_commands": PASSED,
}
"""By the names of the module and of the test."""


def why_left_out(item: pytest.Function) -> str:
    """Return why a test is none of several cores; "": it is one."""
    module = item.function.__module__.rpartition(".")[2]
    return LEFT_OUT.get(f"{module}.{item.function.__name__}", "")


def why_refused(answer: Answer) -> str:
    """Return why several cores may refuse what one core does; "": the answer is another one."""
    if answer.status == 400 and "an archive for each of its cores" in answer.text:
        return ARCHIVE
    return BETWEEN if answer.status == 400 and "is an end of a router between two cores" in answer.text else ""

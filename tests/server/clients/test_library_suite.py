"""Tests of the library, with a client or a twin for asyncio in the place of the log: the same results and errors."""

# ruff: noqa: F401

from tests.embedded.appends.test_records_of_bytes import (
    test_a_part_in_pieces_keeps_its_bytes,
    test_a_part_of_bytes_is_not_the_same_part_as_one_of_equal_json,
    test_a_subclass_of_bytes_is_bytes,
    test_a_view_of_other_items_is_stored_as_its_bytes,
    test_asyncio_appends_and_reads_bytes,
    test_bytes_and_json_follow_each_other_in_one_append,
    test_bytes_before_another_value_are_what_they_are_alone,
    test_bytes_of_any_kind_are_stored_as_they_are,
    test_jobs_of_bytes_are_claimed_and_moved_to_the_dead_letter_topic_as_bytes,
    test_the_size_of_a_record_is_its_number_of_bytes,
    test_what_its_caller_changes_afterwards_does_not_change_a_record,
)
from tests.embedded.calls.test_bounded_reads import (
    test_a_page_has_as_many_records_as_fit_its_bytes_and_one_at_least,
    test_meta_counts_and_a_record_that_is_larger_comes_by_itself,
    test_the_bytes_of_a_read_bound_all_its_records_over_many_pages,
    test_the_bytes_of_a_tail_bound_what_it_reads_ahead_and_not_what_it_yields,
)
from tests.embedded.calls.test_library_queues import (
    test_a_claim_may_wait_for_the_first_job,
    test_a_claim_that_waits_gets_what_is_handed_back_delayed_or_expired,
    test_a_job_comes_with_its_attempts,
    test_a_job_is_claimed_extended_handed_back_and_acked,
    test_a_reason_that_is_too_long_or_none_is_refused,
    test_a_wait_that_is_none_is_refused,
    test_an_older_lease_of_the_same_node_does_not_count,
    test_claims_that_wait_share_the_jobs_and_none_twice,
    test_dead_letters_from_asyncio,
    test_queues_from_asyncio,
    test_seqs_that_are_none_are_refused,
    test_threads_share_the_jobs_and_none_twice,
    test_what_is_no_queue_says_so,
)
from tests.embedded.calls.test_library_routers import (
    test_a_refused_router_leaves_nothing,
    test_a_router_forwards_what_its_filter_lets_through,
    test_routers_are_listed_and_deleted,
    test_the_same_from_asyncio,
)
from tests.embedded.test_library_readers import (
    test_a_commit_of_the_last_record_of_a_page_is_one_of_the_page,
    test_a_gap_is_raised_and_passed_by_a_seek,
    test_a_mistake_is_told_with_argument_value_and_remedy,
    test_a_new_reader_begins_by_a_beginning_and_one_that_exists_where_it_is,
    test_a_read_waits_for_a_record_of_another_thread,
    test_a_topic_that_was_deleted_and_created_again_is_told_as_recreated,
    test_at_most_once_every_page_is_committed_when_it_is_there,
    test_max_bytes_bounds_a_page_and_commit_takes_a_part_of_it,
    test_settings_that_are_not_given_stay,
    test_two_objects_share_a_position_and_a_seek_of_one_makes_the_page_of_the_other_late,
)
from tests.embedded.test_log import (
    test_a_closed_log_says_so,
    test_a_gap_is_an_error_that_names_the_range_and_the_cursor_behind_it,
    test_a_loss_in_one_of_several_topics_names_it,
    test_a_tail_from_a_time_to_come_passes_what_is_earlier,
    test_a_tail_of_several_topics_begins_in_all_of_them_at_its_first_record,
    test_a_tail_of_several_topics_from_a_time_to_come_passes_what_is_earlier,
    test_a_text_that_is_no_json_is_refused_and_nothing_is_appended,
    test_a_wait_tells_of_the_first_topic_with_news,
    test_an_append_may_name_the_incarnation_that_it_means,
    test_an_interrupt_ends_a_wait_and_the_log_goes_on,
    test_asyncio_callers_append_read_and_tail,
    test_of_a_batch_refused_as_a_whole_what_is_fine_is_written_unasked,
    test_of_what_is_appended_soon_only_the_refused_is_refused,
    test_one_tail_may_follow_several_topics,
    test_reading_may_begin_at_a_time,
    test_ready_made_texts_are_appended_as_they_are,
    test_tags_nodes_and_meta_come_back_with_their_record,
    test_threads_append_side_by_side_without_a_loss_or_a_duplicate,
    test_threads_that_append_soon_lose_nothing,
    test_what_is_appended_soon_has_its_seqs_in_order,
    test_what_was_appended_is_read_back_in_order,
)

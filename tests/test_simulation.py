"""The simulator as a test: five hundred worlds of five minutes, and planted bugs to see that it would find one."""

from __future__ import annotations

import asyncio

import pytest

from sim import planted
from sim.__main__ import MINUTES, replay_line
from sim.nonces import Recoveries
from sim.world import run

SEEDS = 500
CHUNKS = 50
SHORT_MINUTES = 5.0
"""Many short worlds see more combinations than few long ones in the same time; `make sim` runs longer ones."""

FINDERS = {
    "ambiguous_not_resolved": 6,
    "ambiguous_taken_for_written": 6,
    "ambiguous_written_twice": 6,
    "b01_reply_before_fsync": 0,
    "b02_retry_failed_fsync": 3,
    "b03_no_directory_sync": 0,
    "b04_rename_without_sync": 3,
    "b06_hint_before_sync": 3,
    "b06_torn_tail_refused": 2,
    "b08_body_without_checksum": 3,
    "b09_full_disk_leaves_half_a_frame": 3,
    "b10_compaction_drops_leased": 0,
    "b11_trim_before_snapshot": 7,
    "b18_clock_follows_the_wall": 5,
    "b18_restart_does_not_renew_leases": 1,
    "b19_failed_append_goes_on": 2,
    "b21_snapshot_newer_than_it_says": 7,
    "b23_replay_differs": 1,
    "b25_stale_receipt_acks": 1,
    "b26_dedup_before_persistence": 41,
    "b27_dedup_by_last_number": 11,
    "b29_generation_not_carried": 0,
    "b29_moved_before_it_is_finished": 19,
    "b30_attempt_not_counted": 1,
    "b30_dead_letter_off_by_one": 0,
    "b33_waiters_not_woken": 17,
    "b48_nonces_restart_at_recovery": 0,
    "b48_nonces_restart_at_reload": 107,
    "b48_position_not_bound": 0,
    "cancel_loses_race": 2,
    "cancelled_but_delivered": 0,
    "dead_letters_limit_off": 1,
    "double_lease": 1,
    "changed_letters_named_in_their_old_blob": 3,
    "shared_segment_positions_begin_anew": 5,
    "ids_in_blobs_forgotten": 5,
    "earlier_life_taken_for_damage": 6,
    "early_delivery": 26,
    "exclusive_retry_frees_it": 21,
    "holds_do_not_keep_the_finished": 10,
    "holds_do_not_stop_a_trim": 35,
    "key_loses_its_partition": 5,
    "keys_not_in_the_snapshot": 8,
    "late_group_sees_the_finished": 25,
    "members_assignment_forgets": 30,
    "members_heartbeat_forgotten": 0,
    "members_not_in_the_snapshot": 0,
    "members_restart_forgets_the_session": 0,
    "members_silent_keep_their_leases": 0,
    "members_stop_the_world": 0,
    "offsets_forgotten_at_snapshot": 20,
    "orders_cap_off_by_one": 9,
    "orders_delay_jumps_the_line": 21,
    "orders_heap_ties_by_arrival": 33,
    "orders_key_forgotten_at_restart": 3,
    "orders_retry_frees_its_key": 2,
    "orders_tenants_without_turns": 9,
    "orders_waiting_key_forgotten_at_restart": 2,
    "prepared_reply_sent_after_failure": 1,
    "redrive_brings_back_later_deaths": 20,
    "redrive_copies_in_two_frames": 0,
    "redrive_forgets_its_budget": 9,
    "redriven_bytes_compacted": 7,
    "reply_sent_before_the_sync": 28,
    "retention_by_pieces": 3,
    "schedule_asleep_after_a_snapshot": 5,
    "schedule_forgets_the_late": 5,
    "schedule_passes_over_a_full_queue": 21,
    "scope_goes_by_age_alone": 7,
    "scope_takes_time_for_early": 20,
    "snapshot_reuses_a_changed_queue": 0,
    "store_delete_before_head": 6,
    "store_names_without_term": 46,
    "store_term_frame_trimmed": 6,
    "store_warning_ignored": 6,
    "transact_acks_first": 0,
    "transact_forgotten": 9,
    "users_not_in_the_snapshot": 8,
    "window_of_one_partition": 5,
}
"""Planted bug -> a seed that found it. Any change of the workload makes other worlds of the same seeds: it only says
where to look first."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_is_found_in_five_hundred_worlds(chunk):
    found = []
    for seed in range(chunk, SEEDS, CHUNKS):
        result = run(seed, SHORT_MINUTES)
        if result.violation is not None:
            found.append(replay_line(result, SHORT_MINUTES))
    assert not found, "\n" + "\n".join(found)


def test_no_nonce_repeats_over_many_recoveries():
    """`python -m sim.nonces` counts 100,000 of them."""
    recoveries = Recoveries(seed=7)
    asyncio.run(recoveries.run(1_000))
    assert recoveries.opened > 500 and recoveries.oracle.uses > 2_000
    assert not recoveries.violations


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDERS)
def test_a_planted_bug_is_found(name):
    """Those that show soon. The rarer ones take hundreds of worlds: `make sim ARGS="--planted all"`."""
    find = planted.hunt(name, [FINDERS[name], *range(30)], MINUTES)
    assert find is not None

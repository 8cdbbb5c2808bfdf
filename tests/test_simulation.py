"""The simulator as a test: five hundred worlds of ten minutes, and planted bugs to see that it would find one."""

from __future__ import annotations

import pytest

from sim import planted
from sim.__main__ import MINUTES, replay_line
from sim.world import run

SEEDS = 500
CHUNKS = 10
HUNT_SEEDS = 1000

LAST_FINDERS = {
    "answer_loses_its_bytes": 10,
    "b01_reply_before_fsync": 0,
    "b02_retry_failed_fsync": 4,
    "b03_no_directory_sync": 7,
    "b03_no_directory_sync_at_open": 34,
    "b04_rename_without_sync": 3,
    "b05_tail_of_killed_process_not_synced": 184,
    "b06_hint_before_sync": 0,
    "b06_torn_tail_refused": 1,
    "b08_body_without_checksum": 3,
    "b09_full_disk_leaves_half_a_frame": 3,
    "b10_compaction_drops_leased": 1,
    "b11_trim_before_snapshot": 27,
    "b18_clock_follows_the_wall": 1,
    "b18_delays_forgotten_in_the_future": 34,
    "b18_restart_does_not_renew_leases": 1,
    "b19_failed_append_goes_on": 2,
    "b21_snapshot_newer_than_it_says": 3,
    "b23_replay_differs": 1,
    "b25_stale_receipt_acks": 1,
    "b26_dedup_before_persistence": 1,
    "b26_dedup_forgotten_at_snapshot": 36,
    "b27_dedup_by_last_number": 2,
    "b29_generation_not_carried": 0,
    "b29_moved_before_it_is_finished": 3,
    "b30_attempt_not_counted": 1,
    "b30_dead_letter_off_by_one": 2,
    "b33_waiters_not_woken": 0,
    "cancel_loses_race": 3,
    "cancelled_but_delivered": 0,
    "double_lease": 1,
    "dead_letters_limit_off": 7,
    "early_delivery": 22,
    "key_loses_its_partition": 2,
    "offsets_forgotten_at_snapshot": 3,
    "late_group_sees_the_finished": 9,
    "members_assignment_forgets": 3,
    "members_heartbeat_forgotten": 0,
    "members_not_in_the_snapshot": 0,
    "members_restart_forgets_the_session": 0,
    "members_silent_keep_their_leases": 0,
    "members_stop_the_world": 0,
    "orders_cap_off_by_one": 58,
    "orders_delay_jumps_the_line": 3,
    "orders_growth_runs_ahead": 49,
    "orders_heap_ties_by_arrival": 1,
    "orders_key_forgotten_at_restart": 2,
    "orders_lanes_without_shares": 47,
    "orders_retry_frees_its_key": 2,
    "orders_tenants_without_turns": 55,
    "orders_waiting_key_forgotten_at_restart": 2,
    "purge_forgets_at_once": 47,
    "redrive_brings_back_later_deaths": 21,
    "redrive_copies_in_two_frames": 21,
    "redrive_forgets_its_budget": 30,
    "redriven_bytes_compacted": 7,
    "retention_by_pieces": 2,
    "transact_acks_first": 3,
    "transact_forgotten": 3,
    "schedule_asleep_after_a_snapshot": 0,
    "schedule_forgets_the_late": 11,
    "schedule_passes_over_a_full_queue": 0,
    "scope_goes_by_age_alone": 5,
    "scope_takes_time_for_early": 5,
    "window_of_one_partition": 12,
}
"""Which seed found a planted bug last time. Any change of the product makes other worlds of the same seeds, so this
only says where to look first."""

OBVIOUS = ["b01_reply_before_fsync", "b06_torn_tail_refused", "b25_stale_receipt_acks", "double_lease"]
"""Bugs that one of the first few seeds finds."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_is_found_in_five_hundred_worlds(chunk):
    found = []
    for seed in range(chunk, SEEDS, CHUNKS):
        result = run(seed, MINUTES)
        if result.violation is not None:
            found.append(replay_line(result, MINUTES))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("name", OBVIOUS)
def test_an_obvious_bug_is_found_at_once(name):
    find = planted.hunt(name, [LAST_FINDERS[name], *range(30)], MINUTES)
    assert find is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in planted.names() if name not in OBVIOUS])
def test_every_planted_bug_is_found(name):
    first = LAST_FINDERS.get(name, 0)
    find = planted.hunt(name, [first, *(seed for seed in range(HUNT_SEEDS) if seed != first)], MINUTES)
    assert find is not None, f"{HUNT_SEEDS} seeds did not find {name}"

"""(state, command, now) -> Decision(records, reply). May refuse, never changes hard state.

Refusals are raised as the errors of `penstock.errors`; a refused command leaves nothing behind. Selecting messages
may throw away stale entries of soft caches (`state.py`), which is why a decision must be applied before the next one
is asked for; the shard's loop does exactly that. Who decides what is the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core import (
    commands,
    groups,
    holds,
    queues,
    readers,
    rebalancing,
    redriving,
    schedules,
    settling,
    waiting,
    webhooks,
)  # fmt: skip
from penstock.core.commands import Command
from penstock.core.decision import Decision
from penstock.core.leasing import Fit, decide_lease
from penstock.core.publishing import decide_publish
from penstock.core.state import Shard
from penstock.core.transacting import transact


def decide(shard: Shard, command: Command, now_ms: int, fit: Fit | None = None) -> Decision:
    if type(command) is commands.Publish:
        return Decision(*decide_publish(shard, command, now_ms))
    if type(command) is commands.Lease:
        return decide_lease(shard, command, now_ms, fit)
    return _DECIDE[type(command)](shard, command, now_ms)


_DECIDE: dict[type, Callable[[Shard, Any, int], Decision]] = {
    commands.Open: queues.open_shard,
    commands.ConfigureQueue: queues.configure,
    commands.DeleteQueue: queues.delete,
    commands.PurgeQueue: queues.purge,
    commands.TrimPartition: queues.trim,
    commands.Transact: transact,
    commands.Ack: settling.ack,
    commands.Nack: settling.nack,
    commands.Reject: settling.reject,
    commands.Release: settling.release,
    commands.Extend: settling.extend,
    commands.Join: rebalancing.join,
    commands.Heartbeat: rebalancing.heartbeat,
    commands.Leave: rebalancing.leave,
    commands.CreateGroup: groups.create,
    commands.SeekGroup: groups.seek,
    commands.DeleteGroup: groups.delete,
    commands.Cancel: waiting.cancel,
    commands.Reschedule: waiting.reschedule,
    commands.StartRedrive: redriving.start,
    commands.RedriveLetters: redriving.step,
    commands.EndRedrive: redriving.end,
    commands.DeleteLetters: redriving.delete,
    commands.PruneLetters: redriving.prune,
    commands.Tick: waiting.tick,
    commands.KeepOffsets: readers.keep,
    commands.ForgetOffsets: readers.forget,
    commands.SetHold: holds.set_hold,
    commands.EndHold: holds.end,
    commands.SetSchedule: schedules.set_schedule,
    commands.PauseSchedule: schedules.pause,
    commands.RemoveSchedule: schedules.remove,
    commands.SetWebhook: webhooks.set_webhook,
    commands.RotateWebhook: webhooks.rotate,
    commands.SwitchWebhook: webhooks.switch,
    commands.RemoveWebhook: webhooks.remove,
}

"""(state, command, now) -> Decision(records, reply). May refuse, never changes hard state.

Refusals are raised as the errors of `penstock.errors`; a refused command leaves nothing behind. Selecting messages
may throw away stale entries of soft caches (`state.py`), which is why a decision must be applied before the next one
is asked for; the shard's loop does exactly that. The table at the end maps each command to its function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core import commands
from penstock.core.commands import Command, Publish, SetSchedule, SetWebhook
from penstock.core.decide import (
    groups,
    holds,
    keys,
    queues,
    readers,
    rebalancing,
    redriving,
    schedules,
    settling,
    users,
    waiting,
    webhooks,
)
from penstock.core.decide.leasing import Fit, decide_lease
from penstock.core.decide.publishing import check_publish, decide_publish
from penstock.core.decide.transacting import transact
from penstock.core.decision import Decision
from penstock.core.state import Shard


def decide(shard: Shard, command: Command, now_ms: int, fit: Fit | None = None) -> Decision:
    if type(command) is commands.Publish:
        return Decision(*decide_publish(shard, command, now_ms))
    if type(command) is commands.Lease:
        return decide_lease(shard, command, now_ms, fit)
    return _DECIDE[type(command)](shard, command, now_ms)


def check(shard: Shard, command: Publish | SetSchedule | SetWebhook, now_ms: int) -> None:
    """Raise the refusal that `decide` would raise now. Makes no records, so nothing has to be applied after it."""
    _CHECK[type(command)](shard, command, now_ms)


_CHECK: dict[type, Callable[[Shard, Any, int], object]] = {
    Publish: check_publish,
    SetSchedule: schedules.check_schedule,
    SetWebhook: webhooks.check_webhook,
}

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
    commands.DropUnreadable: settling.drop_unreadable,
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
    commands.CreateKey: keys.create,
    commands.RotateKey: keys.rotate,
    commands.RevokeKey: keys.revoke,
    commands.AddUser: users.add,
    commands.ChangeUser: users.change,
    commands.RemoveUser: users.remove,
}

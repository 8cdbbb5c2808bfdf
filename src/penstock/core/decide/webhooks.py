"""Webhooks: groups whose messages are sent to a URL.

The machine sends nothing. To it a webhook is a registration, and two rules. Its group begins with it: what is published
from then on is kept for it, also while it is paused. And its group has the webhook's budget of retries, and not the
queue's (`retry.retries_of`). That is decided here and not by the courier: the lease of a message whose courier died
runs out, and the message must not be given up by the queue's smaller budget.

Secrets come sealed and stay so. During a rotation the earlier ones sign beside the newest until their time is over.
"""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.decide.groups import new_group
from penstock.core.decision import Decision
from penstock.core.records import Record
from penstock.core.state import Shard, Webhook
from penstock.errors import Conflict, NotFound


def set_webhook(shard: Shard, command: commands.SetWebhook, now_ms: int) -> Decision:
    check_webhook(shard, command, now_ms)
    spec = command.spec
    existing = shard.webhooks.get(command.id)
    if existing is not None and existing.spec == spec:
        return Decision([], None)
    made: list[Record] = [records.WebhookSet(now_ms, command.id, spec, command.secret)]
    queue = shard.queues.get(shard.paths.get(spec.queue, -1))
    if queue is not None and spec.group not in queue.groups:
        made.append(new_group(queue, spec.group, now_ms))
    return Decision(made, None)


def check_webhook(shard: Shard, command: commands.SetWebhook, now_ms: int) -> None:  # noqa: ARG001  one shape for all
    """Raise the refusal of `set_webhook`."""
    spec = command.spec
    holder = shard.webhook_groups.get((spec.queue, spec.group))
    if holder is not None and holder.id != command.id:
        raise Conflict(
            f"group {spec.group} of {spec.queue} has a webhook already, {holder.id}; name another group, and both get "
            "every message",
            details={"webhook": holder.id},
        )
    if command.id not in shard.webhooks:
        if not command.secret:
            raise _unknown(command.id)
        if len(shard.webhooks) >= limits.WEBHOOKS_MAX:
            raise Conflict(f"there are {limits.WEBHOOKS_MAX} webhooks already, which is the limit")


def rotate(shard: Shard, command: commands.RotateWebhook, now_ms: int) -> Decision:
    webhook = webhook_of(shard, command.id)
    signing = webhook.secrets_at(now_ms)
    if command.overlap_ms and len(signing) >= limits.WEBHOOK_SECRETS_MAX:
        raise Conflict(
            f"webhook {command.id} signs with {len(signing)} secrets already; wait until {signing[-1].until} (epoch "
            "milliseconds), or rotate with overlap_ms 0, which ends all of them now"
        )
    return Decision([records.WebhookRotated(now_ms, command.id, command.secret, now_ms + command.overlap_ms)], None)


def switch(shard: Shard, command: commands.SwitchWebhook, now_ms: int) -> Decision:
    if webhook_of(shard, command.id).state == command.state:
        return Decision([], None)
    return Decision([records.WebhookState(now_ms, command.id, command.state, command.reason)], None)


def remove(shard: Shard, command: commands.RemoveWebhook, now_ms: int) -> Decision:
    webhook_of(shard, command.id)
    return Decision([records.WebhookRemoved(now_ms, command.id)], None)


def webhook_of(shard: Shard, name: str) -> Webhook:
    webhook = shard.webhooks.get(name)
    if webhook is None:
        raise _unknown(name)
    return webhook


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no webhook {name[:64]}", details={"webhook": name[:64]})

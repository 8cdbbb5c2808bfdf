"""Webhooks: groups whose messages are sent to a URL.

The machine sends nothing. To it a webhook is a registration, and two rules. Its group begins with it: what is published
from then on is kept for it, also while it is paused. And its group has the webhook's budget of retries, and not the
queue's (`retry.retries_of`). That is decided here and not by whoever sends, because a message whose sender died has its
lease run out, and must not be given up for having a sender with more patience than its queue.

Secrets come sealed and stay so. During a rotation the earlier ones sign beside the newest until their time is over.
"""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision
from penstock.core.groups import new_group
from penstock.core.records import Record
from penstock.core.state import SealedSecret, Shard, Webhook
from penstock.errors import Conflict, NotFound

# -- deciding -----------------------------------------------------------------------------------------------------


def set_webhook(shard: Shard, command: commands.SetWebhook, now_ms: int) -> Decision:
    spec = command.spec
    existing = shard.webhooks.get(command.id)
    holder = shard.webhook_groups.get((spec.queue, spec.group))
    if holder is not None and holder.id != command.id:
        raise Conflict(
            f"group {spec.group} of {spec.queue} has a webhook already, {holder.id}; name another group, and both get "
            "every message",
            details={"webhook": holder.id},
        )
    if existing is None:
        if not command.secret:
            raise _unknown(command.id)
        if len(shard.webhooks) >= limits.WEBHOOKS_MAX:
            raise Conflict(f"there are {limits.WEBHOOKS_MAX} webhooks already, which is the limit")
    elif existing.spec == spec:
        return Decision([], None)
    made: list[Record] = [records.WebhookSet(now_ms, command.id, spec, command.secret)]
    queue = shard.queues.get(shard.paths.get(spec.queue, -1))
    if queue is not None and spec.group not in queue.groups:
        made.append(new_group(queue, spec.group, now_ms))
    return Decision(made, None)


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


# -- applying -----------------------------------------------------------------------------------------------------


def apply_set(shard: Shard, record: records.WebhookSet) -> None:
    webhook = shard.webhooks.get(record.id)
    if webhook is None:
        secrets = [SealedSecret(record.secret, None)]
        webhook = shard.webhooks[record.id] = Webhook(record.id, record.spec, record.at, record.at, secrets)
    else:
        del shard.webhook_groups[webhook.spec.queue, webhook.spec.group]
    webhook.spec = record.spec
    webhook.changed_at = record.at
    shard.webhook_groups[record.spec.queue, record.spec.group] = webhook


def apply_rotated(shard: Shard, record: records.WebhookRotated) -> None:
    webhook = shard.webhooks[record.id]
    kept = [
        SealedSecret(secret.sealed, record.until if secret.until is None else min(secret.until, record.until))
        for secret in webhook.secrets_at(record.at)
    ]
    # Replaced, not changed: a snapshot that is being written may have the old list.
    webhook.secrets = [
        SealedSecret(record.secret, None),
        *(secret for secret in kept if secret.until is not None and record.at < secret.until),
    ]
    webhook.changed_at = record.at


def apply_state(shard: Shard, record: records.WebhookState) -> None:
    webhook = shard.webhooks[record.id]
    webhook.state, webhook.reason, webhook.switched_at = record.state, record.reason, record.at


def apply_removed(shard: Shard, record: records.WebhookRemoved) -> None:
    webhook = shard.webhooks.pop(record.id)
    del shard.webhook_groups[webhook.spec.queue, webhook.spec.group]

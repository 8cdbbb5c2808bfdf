"""Applying changes of webhooks."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state import SealedSecret, Shard, Webhook


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

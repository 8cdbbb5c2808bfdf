"""Registration of webhooks, and the view of them that the delivering transport needs.

Registrations are facts of the shard. Delivery is done by an ordinary consumer among the transports, which attaches
itself as the `Courier`; a server without one keeps registrations and sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from penstock import limits
from penstock.broker.finding import find_message
from penstock.broker.intake import Intake
from penstock.broker.types import DeliveredRun, Entropy, Submit
from penstock.broker.vault import Vault, WebhookSecret
from penstock.core import commands
from penstock.core.records import WebhookSpec
from penstock.core.state import Webhook
from penstock.errors import Conflict, NotFound, Unavailable
from penstock.ids import QueuePath, check_group, id_at, parse_queue, ulid_text
from penstock.runtime.view import ShardView
from penstock.wire.webhooks import (
    Attempt,
    AttemptsReply,
    DeliveryStatus,
    Format,
    TestReply,
    WebhookChanges,
    WebhookReply,
    WebhookRequest,
    WebhooksReply,
)


class Registration(NamedTuple):
    """A webhook as the courier needs it. The URL may contain credentials, so it must not be logged."""

    id: str
    queue: QueuePath
    group: str
    url: str
    format: Format
    retry_delays_ms: Sequence[int]
    timeout_ms: int
    concurrency: int
    active: bool


class Courier(Protocol):
    """The transport that delivers webhooks."""

    def check_url(self, url: str) -> None:
        """Raises InvalidRequest for what could never be sent to."""

    def changed(self, id: str) -> None:
        """This webhook was registered, changed, switched or removed, and that is durable."""

    async def test(self, registration: Registration) -> TestReply:
        """Send something to it that is not a message."""

    async def resend(self, registration: Registration, run: DeliveredRun) -> TestReply:
        """Send this message once more, and settle nothing."""

    def status(self, id: str) -> DeliveryStatus | None: ...

    def attempts(self, id: str, limit: int) -> list[Attempt]: ...


class Webhooks:
    def __init__(
        self, view: ShardView, submit: Submit, intake: Intake, entropy: Entropy, vault: Vault | None, shard: int = 0
    ):
        """Without a vault to seal their secrets in there are no webhooks."""
        self._view = view
        self._submit = submit
        self._intake = intake
        self._entropy = entropy
        self._vault = vault
        self._shard = shard
        self._courier: Courier | None = None

    def attach(self, courier: Courier) -> None:
        self._courier = courier

    # -- for people ---------------------------------------------------------------------------------------------------

    async def create(self, asked: WebhookRequest) -> WebhookReply:
        """With its secret, which is not shown again."""
        id = ulid_text(id_at(self._view.now_ms(), self._shard, self._entropy(80)))
        spec = WebhookSpec(
            parse_queue(asked.queue), _own_group(id) if asked.group is None else check_group(asked.group), asked.url,
            asked.retry_delays_ms, asked.format, asked.timeout_ms, asked.concurrency, asked.description,
        )  # fmt: skip
        if self._courier is not None:
            self._courier.check_url(spec.url)
        if asked.group is None:
            self._check_first(spec)
        secret = WebhookSecret.new()
        command = commands.SetWebhook(id, spec, self._opened_vault().seal(secret, id))
        # Everything is checked before the queue is created: a refused webhook leaves no queue behind.
        self._view.check(command)
        self._intake.make_queue(QueuePath(spec.queue))
        made = [self._submit(command)]
        if asked.paused:
            made.append(self._submit(commands.SwitchWebhook(id, "paused")))
        await asyncio.gather(*made)
        return self._after_change(id, secret)

    def _check_first(self, spec: WebhookSpec) -> None:
        """Refuse a second webhook with a group of its own for the same queue and URL: a request that is repeated after
        its answer was lost must not have every message sent twice."""
        for hook in self._view.webhooks().values():
            if (hook.spec.queue, hook.spec.url, hook.spec.group) == (spec.queue, spec.url, _own_group(hook.id)):
                raise Conflict(
                    f"webhook {hook.id} sends the messages of {spec.queue} to this URL already; name a group to have "
                    "them sent twice",
                    details={"webhook": hook.id},
                )

    def get(self, id: str) -> WebhookReply:
        return self._shown(self._view.webhook(id))

    def list(self, *, queue: str | None, page: int, limit: int) -> WebhooksReply:
        path = None if queue is None else parse_queue(queue)
        found = sorted(
            (hook for hook in self._view.webhooks().values() if path in (None, hook.spec.queue)),
            key=lambda hook: hook.id,
        )
        return WebhooksReply(
            [self._shown(hook) for hook in found[(page - 1) * limit : page * limit]], len(found), page, limit
        )

    async def change(self, id: str, changes: WebhookChanges) -> WebhookReply:
        webhook = self._view.webhook(id)
        given = {name: value for name in changes.__struct_fields__ if (value := getattr(changes, name)) is not UNSET}
        spec = msgspec.structs.replace(webhook.spec, **given)
        if self._courier is not None:
            self._courier.check_url(spec.url)
        await self._submit(commands.SetWebhook(id, spec))
        return self._after_change(id)

    async def rotate(self, id: str, overlap_ms: int) -> WebhookReply:
        """With the new secret. The earlier ones sign as well for `overlap_ms`."""
        self._view.webhook(id)
        secret = WebhookSecret.new()
        sealed = self._opened_vault().seal(secret, id)
        await self._submit(commands.RotateWebhook(id, sealed, overlap_ms))
        return self._after_change(id, secret)

    async def pause(self, id: str) -> WebhookReply:
        if self._view.webhook(id).state == "disabled":
            raise Conflict(f"webhook {id} is disabled, which is more than paused; resume it first")
        await self._submit(commands.SwitchWebhook(id, "paused"))
        return self._after_change(id)

    async def resume(self, id: str) -> WebhookReply:
        """Also one that is disabled, and one whose circuit is open: its next message is tried at once."""
        await self._submit(commands.SwitchWebhook(id, "active"))
        return self._after_change(id)

    async def remove(self, id: str) -> None:
        """Messages of its group stay where they are."""
        await self._submit(commands.RemoveWebhook(id))
        if self._courier is not None:
            self._courier.changed(id)

    async def test(self, id: str) -> TestReply:
        webhook = self._view.webhook(id)
        if self._courier is None:
            raise Unavailable("this server delivers no webhooks")
        return await self._courier.test(_registration(webhook))

    async def resend(self, id: str, message_id: str) -> TestReply:
        """Send a message of the webhook's queue once more. It needs to be stored; its state does not change."""
        webhook = self._view.webhook(id)
        if self._courier is None:
            raise Unavailable("this server delivers no webhooks")
        return await self._courier.resend(_registration(webhook), self._stored(webhook.spec.queue, message_id))

    def _stored(self, path: str, message_id: str) -> DeliveredRun:
        queue = self._view.queue(path)
        found = find_message(self._view.log, queue, message_id)
        if found is not None and found.partition is not None and found.offset is not None:
            for record, offset, _ in self._view.log.runs(queue.number, found.partition, found.offset, found.offset + 1):
                row = offset - record.offset
                return DeliveredRun(
                    queue.path, found.partition, offset, 1, record.id + row, record.at, record.batch.run(row, row + 1)
                )
        raise NotFound(
            f"message {message_id[:128]} is not stored any more in {path}; only retention `keep` keeps messages that "
            "were acked"
        )

    def attempts(self, id: str, limit: int) -> AttemptsReply:
        self._view.webhook(id)
        return AttemptsReply(id, [] if self._courier is None else self._courier.attempts(id, limit))

    def rest_of(self, queue: str, group: str) -> tuple[str, str, int | None] | None:
        """(webhook, paused | disabled | open, until) if the group is read by a webhook that sends nothing now."""
        webhook = self._view.webhook_of_group(queue, group)
        if webhook is None:
            return None
        if webhook.state != "active":
            return webhook.id, webhook.state, None
        status = None if self._courier is None else self._courier.status(webhook.id)
        if status is None or status.next_at_ms is None:
            return None
        return webhook.id, "open", status.next_at_ms

    # -- for the courier ----------------------------------------------------------------------------------------------

    def registrations(self) -> Sequence[Registration]:
        return [_registration(webhook) for webhook in self._view.webhooks().values()]

    def registration(self, id: str) -> Registration | None:
        webhook = self._view.webhooks().get(id)
        return None if webhook is None else _registration(webhook)

    def secrets(self, id: str) -> Sequence[WebhookSecret]:
        """Those that sign now, newest first. Raises Unavailable if they cannot be opened."""
        webhook = self._view.webhook(id)
        vault = self._opened_vault()
        return [vault.open(secret.sealed, id) for secret in webhook.secrets_at(self._view.now_ms())]

    async def disable(self, id: str, reason: str) -> None:
        """The endpoint answered that it is gone. Nothing is sent until the webhook is resumed."""
        await self._submit(commands.SwitchWebhook(id, "disabled", reason[: limits.ERROR_CHARS_MAX]))
        if self._courier is not None:
            self._courier.changed(id)

    def _after_change(self, id: str, secret: WebhookSecret | None = None) -> WebhookReply:
        if self._courier is not None:
            self._courier.changed(id)
        shown = self.get(id)
        if secret is not None:
            shown.secret = secret.text
        return shown

    def _opened_vault(self) -> Vault:
        if self._vault is None:
            raise Unavailable("this server has no key to seal secrets with, and so no webhooks")
        return self._vault

    def _shown(self, webhook: Webhook) -> WebhookReply:
        spec = webhook.spec
        return WebhookReply(
            id=webhook.id,
            queue=spec.queue,
            group=spec.group,
            url=spec.url,
            format=spec.format,
            retry_delays_ms=spec.retry_delays_ms,
            timeout_ms=spec.timeout_ms,
            concurrency=spec.concurrency,
            description=spec.description,
            state=webhook.state,
            reason=webhook.reason or None,
            secrets=len(webhook.secrets_at(self._view.now_ms())),
            created_at_ms=webhook.created_at,
            changed_at_ms=webhook.changed_at,
            delivery=None if self._courier is None else self._courier.status(webhook.id),
        )


def _own_group(id: str) -> str:
    return f"webhook-{id}"


def _registration(webhook: Webhook) -> Registration:
    spec = webhook.spec
    return Registration(
        webhook.id, QueuePath(spec.queue), spec.group, spec.url, spec.format, spec.retry_delays_ms, spec.timeout_ms,
        spec.concurrency, webhook.state == "active",
    )  # fmt: skip

"""`penstock webhooks …`: send the messages of a group to a URL."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import Limit, Page, QueueArgument, remote_command
from penstock.server.times import duration_option
from penstock.wire.webhooks import Format

WEBHOOKS = Listing(
    "webhooks",
    ("id", "state", "queue", "group", "url", "delivery.circuit", "delivery.delivered", "delivery.failed"),
)
ATTEMPTS = Listing(
    "attempts", ("at_ms", "message_id", "attempt", "outcome", "status", "duration_ms", "error", "retry_at_ms")
)
TEST_TIMEOUT_S = 90
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook, as shown by add and list.")]
FormatOption = Annotated[
    Format | None,
    typer.Option(help="Body of the request: the payload, or a CloudEvent.  \\[default: plain]", show_default=False),
]
RetryDelays = Annotated[
    list[float] | None,
    duration_option("Delay after a failure; give it once for each retry.", default="9 retries in 3 days"),
]
Timeout = Annotated[float | None, duration_option("Timeout of one attempt.", default="15s")]
Concurrency = Annotated[int | None, typer.Option(help="Concurrent requests.  \\[default: 4]")]
Description = Annotated[str | None, typer.Option(help="Description shown in the list.")]

webhooks = command_group("Send the messages of a group to a URL.", alone="list")


@webhooks.command("list")
@remote_command(WEBHOOKS)
def list_webhooks(
    remote: Remote,
    queue: Annotated[str | None, typer.Option(help="Only those of this queue.")] = None,
    page: Page = 1,
    limit: Limit = 50,
) -> Any:
    """List the webhooks with their delivery counters.

    Example: penstock webhooks list --queue orders
    """
    return remote.ask("list_webhooks", queue=queue, page=page, limit=limit)


@webhooks.command()
@remote_command()
def add(
    remote: Remote,
    queue: QueueArgument,
    endpoint: Annotated[str, typer.Argument(metavar="URL", help="Like https://example.com/hooks.")],
    group: Annotated[
        str | None, typer.Option(help="Deliver the messages of this group.  \\[default: one of its own]")
    ] = None,
    format: FormatOption = None,
    retry_delay: RetryDelays = None,
    timeout: Timeout = None,
    concurrency: Concurrency = None,
    description: Description = None,
    paused: Annotated[bool, typer.Option("--paused", help="Send nothing until it is resumed.")] = False,
) -> Any:
    """Register a webhook. Shows the signing secret once; store it.

    Example: penstock webhooks add orders https://example.com/hooks
    """
    body = _given(
        queue=queue, url=endpoint, group=group, format=format, description=description, concurrency=concurrency,
        retry_delays_ms=retry_delay, timeout_ms=timeout,
    )  # fmt: skip
    return remote.ask("create_webhook", body={**body, "paused": paused})


@webhooks.command()
@remote_command()
def change(
    remote: Remote,
    id: IdArgument,
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="Send to this URL instead.")] = None,
    format: FormatOption = None,
    retry_delay: RetryDelays = None,
    timeout: Timeout = None,
    concurrency: Concurrency = None,
    description: Description = None,
) -> Any:
    """Change a webhook. Settings that are not given, the secret, the queue and the group stay unchanged.

    Example: penstock webhooks change 01JPX3J8M5S4G7Q2V9W0E1R2T3 --timeout 30s
    """
    body = _given(
        url=endpoint, format=format, description=description, concurrency=concurrency, retry_delays_ms=retry_delay,
        timeout_ms=timeout,
    )  # fmt: skip
    return remote.ask("change_webhook", id=id, body=body)


@webhooks.command("show")
@remote_command()
def show_webhook(remote: Remote, id: IdArgument) -> Any:
    """Show a webhook with its delivery counters.

    Example: penstock webhooks show 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return remote.ask("get_webhook", id=id)


@webhooks.command()
@remote_command(is_refusal=lambda answer: answer["outcome"] != "delivered")
def test(remote: Remote, id: IdArgument) -> Any:
    """Send a test request to the endpoint. Exits with 1 if the endpoint did not accept it.

    Example: penstock webhooks test 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return Remote(remote.url, timeout_s=TEST_TIMEOUT_S).ask("test_webhook", id=id)


@webhooks.command()
@remote_command(is_refusal=lambda answer: answer["outcome"] != "delivered")
def resend(
    remote: Remote, id: IdArgument, message_id: Annotated[str, typer.Argument(help="Id of a message of the queue.")]
) -> Any:
    """Send a message that is still stored once more. Exits with 1 if the endpoint did not accept it.

    Example: penstock webhooks resend 01JPX3J8M5S4G7Q2V9W0E1R2T3 01JPX4K2M5S4G7Q2V9W0E1R2T3
    """
    return Remote(remote.url, timeout_s=TEST_TIMEOUT_S).ask("resend_webhook", id=id, message_id=message_id)


@webhooks.command()
@remote_command()
def pause(remote: Remote, id: IdArgument) -> Any:
    """Pause a webhook until it is resumed.

    Example: penstock webhooks pause 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return remote.ask("pause_webhook", id=id)


@webhooks.command()
@remote_command()
def resume(remote: Remote, id: IdArgument) -> Any:
    """Resume a webhook, even if its endpoint answered 410 Gone.

    Example: penstock webhooks resume 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return remote.ask("resume_webhook", id=id)


@webhooks.command()
@remote_command()
def rotate(
    remote: Remote,
    id: IdArgument,
    overlap: Annotated[
        float | None, duration_option("Time during which the previous secret signs as well.", default="a day")
    ] = None,
) -> Any:
    """Replace the signing secret. Shows the new secret once; store it.

    Example: penstock webhooks rotate 01JPX3J8M5S4G7Q2V9W0E1R2T3 --overlap 2h
    """
    return remote.ask("rotate_webhook", body=_given(id=id, overlap_ms=overlap))


@webhooks.command()
@remote_command()
def remove(remote: Remote, id: IdArgument) -> Any:
    """Remove a webhook. Messages of its group stay.

    Example: penstock webhooks remove 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return remote.ask("delete_webhook", id=id)


@webhooks.command()
@remote_command(ATTEMPTS)
def attempts(
    remote: Remote,
    id: IdArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Number of attempts.")] = 20,
) -> Any:
    """List the latest delivery attempts, newest first.

    Example: penstock webhooks attempts 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    return remote.ask("webhook_attempts", id=id, limit=limit)


def _given(**fields: Any) -> dict[str, Any]:
    """The fields of the API that were given. Durations, which options have in seconds, become milliseconds."""
    given: dict[str, Any] = {name: value for name, value in fields.items() if value not in (None, [])}
    for name in ("timeout_ms", "overlap_ms"):
        if name in given:
            given[name] = round(given[name] * 1000)
    if "retry_delays_ms" in given:
        given["retry_delays_ms"] = [round(seconds * 1000) for seconds in given["retry_delays_ms"]]
    return given

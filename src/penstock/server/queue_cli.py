"""`penstock queues`: list queues, change their settings, empty and delete them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from penstock.durations import parse_duration_ms
from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import Limit, Page, QueueArgument, Yes, confirmed, remote_command

QUEUES = Listing(
    "queues",
    ("queue", "ready", "leased", "scheduled", "dead", "rates.published_per_s", "rates.acked_per_s", "config.order",
     "config.partitions"),
)  # fmt: skip
SHORTHANDS = {"backoff": "kind", "retention": "mode", "fair_share": "enabled"}
"""Settings that are objects -> the field that a plain value sets: `backoff=fixed` means `backoff.kind=fixed`."""

queues = command_group("Queues: list them, change their settings, empty and delete them.", alone="list", named="show")


@queues.command("list")
@remote_command(QUEUES)
def list_queues(
    remote: Remote,
    prefix: Annotated[str, typer.Option(help="Only queues whose full path starts with this.")] = "",
    page: Page = 1,
    limit: Limit = 50,
) -> Any:
    """List the queues: messages that are ready, leased, scheduled and dead, and messages per second.

    Example: penstock queues --prefix shop/
    """
    return remote.ask("list_queues", prefix=prefix or None, page=page, limit=limit)


@queues.command()
@remote_command()
def show(
    remote: Remote,
    queue: QueueArgument,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change this setting, or create the queue with it; asks before stored messages are discarded.",
        ),
    ] = None,
    yes: Yes = False,
) -> Any:
    """Show a queue and its settings, or change them. `show` may be left out.

    A field of a setting has a dot (retention.mode=keep); backoff=fixed and retention=keep are short for the field that
    matters most. Settings in milliseconds take durations too: lease_ms=30s.

    Example: penstock queues orders --set max_retries=5 --set backoff=fixed
    """
    if not change:
        return remote.ask("get_queue", queue=queue)
    values = parse_settings(change)
    return confirmed(
        lambda query: remote.ask("put_queue", queue=queue, body=values, **query),
        lambda lost: (
            f"{queue}: {lost['messages']} stored messages and {lost['dead_letters']} dead letters would be discarded; "
            f"{lost['messages_sooner']} and {lost['dead_letters_sooner']} more would be kept for a shorter time. "
            "Change it?"
        ),
        yes,
    )


@queues.command()
@remote_command()
def purge(remote: Remote, queue: QueueArgument, yes: Yes = False) -> Any:
    """Delete all messages and dead letters of a queue. The queue and its settings stay. Asks first.

    Example: penstock queues purge orders
    """
    return _destroyed(remote, "purge_queue", queue, "Empty", yes)


@queues.command()
@remote_command()
def delete(remote: Remote, queue: QueueArgument, yes: Yes = False) -> Any:
    """Delete a queue with its messages, dead letters, groups and settings. Asks first.

    Example: penstock queues delete orders
    """
    return _destroyed(remote, "delete_queue", queue, "Delete", yes)


def _destroyed(remote: Remote, operation: str, queue: str, verb: str, yes: bool) -> Any:
    return confirmed(
        lambda query: remote.ask(operation, queue=queue, **query),
        lambda lost: f"{verb} {queue}, with {lost['messages']} messages and {lost['dead_letters']} dead letters?",
        yes,
        name=queue,
    )


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """The settings of `KEY=VALUE` texts as the API takes them."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, given = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--set {text}: write KEY=VALUE")
        outer, _, inner = name.partition(".")
        value = _value(name, given)
        if not inner and outer in SHORTHANDS and not isinstance(value, dict):
            inner = SHORTHANDS[outer]
        if not inner:
            settings[name] = value
        else:
            before = settings.get(outer)
            settings[outer] = {**(before if isinstance(before, dict) else {}), inner: value}
    return settings


def _value(name: str, text: str) -> Any:
    """JSON, a duration of a setting in milliseconds, or plain text."""
    if name.rpartition(".")[2].endswith("ms") and (ms := parse_duration_ms(text)) is not None:
        return round(ms)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text

"""`penstock cancel` and `reschedule`: cancel messages that are not leased, or change their delivery time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import QueueArgument, remote_command
from penstock.server.times import DUE, duration_option, parse_deliver_at

RESULTS = Listing("results", ("id", "status"), "no unsettled message of this queue has this key")

Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given repeatedly.")]
Key = Annotated[str | None, typer.Option(help="Instead of ids: all unsettled messages with this key.")]


@remote_command(RESULTS, is_refusal=lambda answer: not answer["cancelled"])
def cancel(remote: Remote, queue: QueueArgument, ids: Ids = None, key: Key = None) -> Any:
    """Cancel messages that are not leased.

    Prints the status of each: cancelled, in_flight (leased by a consumer), done or not_found. A cancelled message is
    not delivered. Exits with 1 if no message was cancelled.

    Example: penstock cancel orders --key user-42
    """
    return remote.ask("cancel", queue=queue, **_chosen(ids, key))


@remote_command(RESULTS, is_refusal=lambda answer: not answer["rescheduled"])
def reschedule(
    remote: Remote,
    queue: QueueArgument,
    ids: Ids = None,
    key: Key = None,
    delay: Annotated[float | None, duration_option("Delay from now before the delivery; 0: deliver now.")] = None,
    at: Annotated[str | None, DUE] = None,
) -> Any:
    """Change the delivery time of messages that are not leased, to a later or an earlier one.

    Prints the status of each: rescheduled, in_flight (leased by a consumer), done or not_found. Exits with 1 if no
    message was rescheduled.

    Example: penstock reschedule orders --id reminder-42 --delay 10m
    """
    chosen = _chosen(ids, key)
    if at is not None and delay is None:
        when = {"deliver_at_ms": parse_deliver_at(at)}
    elif delay is not None and at is None:
        when = {"delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX)}
    else:
        raise typer.BadParameter("give one of --delay and --at")
    return remote.ask("reschedule", queue=queue, **chosen, **when)


def _chosen(ids: list[str] | None, key: str | None) -> dict[str, Any]:
    if bool(ids) == (key is not None):
        raise typer.BadParameter("give --id, once or more, or --key")
    return {"ids": ids} if ids else {"key": key}

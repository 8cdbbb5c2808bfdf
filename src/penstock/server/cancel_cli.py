"""`penstock cancel` and `reschedule`: cancel messages that are not leased, or change their delivery time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    errors_in_one_line,
    show,
)
from penstock.server.times import DUE, parse_deliver_at

RESULTS = Listing("results", ("id", "status"))

Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given repeatedly.")]
Key = Annotated[str | None, typer.Option(help="Instead of ids: all unsettled messages with this key.")]


def cancel(
    queue: QueueArgument, ids: Ids = None, key: Key = None, output: OutputOption = Output.table, url: Url = URL_DEFAULT
) -> None:
    """Cancel messages that are not leased.

    Prints the status of each: cancelled, in_flight (leased by a consumer), done or not_found. A cancelled message is
    not delivered. Exits with 1 if no message was cancelled.
    """
    _change("cancel", "cancelled", queue, _chosen(ids, key), output, url)


def reschedule(
    queue: QueueArgument,
    ids: Ids = None,
    key: Key = None,
    delay: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Delay from now before the delivery; 0: deliver now.")
    ] = None,
    at: Annotated[str | None, DUE] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Change the delivery time of messages that are not leased, to a later or an earlier one.

    Prints the status of each: rescheduled, in_flight (leased by a consumer), done or not_found. Exits with 1 if no
    message was rescheduled.
    """
    chosen = _chosen(ids, key)
    if (delay is None) == (at is None):
        raise typer.BadParameter("give one of --delay and --at")
    with errors_in_one_line():
        if at is not None:
            when = {"deliver_at_ms": parse_deliver_at(at)}
        else:
            when = {"delay_ms": milliseconds("delay", delay or 0, limits.DELAY_MS_MAX)}
    _change("reschedule", "rescheduled", queue, {**chosen, **when}, output, url)


def _chosen(ids: list[str] | None, key: str | None) -> dict[str, Any]:
    if bool(ids) == (key is not None):
        raise typer.BadParameter("give --id, once or more, or --key")
    return {"ids": ids} if ids else {"key": key}


def _change(verb: str, done: str, queue: str, terms: dict[str, Any], output: Output, url: str) -> None:
    with errors_in_one_line():
        answer = Remote(url).call("POST", f"/v1/{verb}", body={"queue": queue, **terms})
        if output is Output.json:
            show(answer, output)
        elif answer["results"]:
            show({**answer, "total": len(answer["results"])}, output, RESULTS)
        else:
            typer.echo(f"no unsettled message of {queue} has this key")
    if not answer[done]:
        raise typer.Exit(EXIT_REFUSED)

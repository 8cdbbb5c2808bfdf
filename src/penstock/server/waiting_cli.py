"""`penstock cancel` and `reschedule`: messages that nobody has yet, taken back or given another time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.server.moment import DUE, parse_due
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

RESULTS = Listing("results", ("id", "status"))

Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given repeatedly.")]
Key = Annotated[str | None, typer.Option(help="Instead of ids: everything unfinished with this key.")]


def cancel(
    queue: QueueArgument, ids: Ids = None, key: Key = None, output: OutputOption = Output.table, url: Url = URL_DEFAULT
) -> None:
    """Take back messages that nobody has yet.

    Says of each what became of it: cancelled, in_flight (somebody has it), done or not_found. What was cancelled is
    not delivered. Exits with 1 if nothing was cancelled.
    """
    _touch("cancel", "cancelled", queue, _chosen(ids, key), output, url)


def reschedule(
    queue: QueueArgument,
    ids: Ids = None,
    key: Key = None,
    delay: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Deliver no sooner than so long from now; 0: now.")
    ] = None,
    at: Annotated[str | None, DUE] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Deliver messages that nobody has yet at another time, later or sooner.

    Says of each what became of it: rescheduled, in_flight (somebody has it), done or not_found. Exits with 1 if nothing
    was rescheduled.
    """
    chosen = _chosen(ids, key)
    if (delay is None) == (at is None):
        raise typer.BadParameter("say when: one of --delay and --at")
    with errors_in_one_line():
        if at is not None:
            when = {"deliver_at_ms": parse_due(at)}
        else:
            when = {"delay_ms": milliseconds("delay", delay or 0, limits.DELAY_MS_MAX)}
    _touch("reschedule", "rescheduled", queue, {**chosen, **when}, output, url)


def _chosen(ids: list[str] | None, key: str | None) -> dict[str, Any]:
    if bool(ids) == (key is not None):
        raise typer.BadParameter("say which: --id, once or more, or --key")
    return {"ids": ids} if ids else {"key": key}


def _touch(verb: str, done: str, queue: str, terms: dict[str, Any], output: Output, url: str) -> None:
    with errors_in_one_line():
        answer = Remote(url).call("POST", f"/v1/{verb}", body={"queue": queue, **terms})
        if output is Output.json:
            show(answer, output)
        elif answer["results"]:
            show({**answer, "total": len(answer["results"])}, output, RESULTS)
        else:
            typer.echo(f"nothing unfinished has this key in {queue}")
    if not answer[done]:
        raise typer.Exit(EXIT_REFUSED)

"""`penstock stats`, `autoscale`, `scheduled`, `explain` and `history`: look at queues and messages of a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import limits
from penstock.server.completion import complete_queue
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import (
    URL_DEFAULT,
    Group,
    Limit,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    remote_command,
    show,
)
from penstock.server.times import duration_option

EVENTS = Listing(
    "events",
    ("at_ms", "kind", "group", "consumer", "attempt", "lease", "reason", "error", "due_at_ms", "deadline_at_ms"),
)
SCHEDULED = Listing("messages", ("id", "due_at_ms", "partition", "offset", "key", "client_id", "published_at_ms"))


@remote_command()
def stats(
    remote: Remote,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Show this queue only.", autocompletion=complete_queue)
    ] = None,
) -> Any:
    """Show the statistics of the server or of one queue.

    Example: penstock stats orders
    """
    return remote.ask("stats", queue=queue) if queue else remote.ask("summary")


def _with_unbounded_as_text(signal: dict[str, Any]) -> dict[str, Any]:
    """Replace the number that stands for "unbounded", which the API needs for scalers, by text."""
    shown = {name: value for name, value in signal.items() if name != "at_ms"}
    if shown["mean_service_time_s"] < 0:
        shown["mean_service_time_s"] = None
    if shown["time_to_drain_s"] < 0:
        shown["time_to_drain_s"] = "never, at these rates"
    return shown


@remote_command(readable=_with_unbounded_as_text)
def autoscale(
    remote: Remote,
    queue: QueueArgument,
    group: Group = "default",
    target_drain: Annotated[float, duration_option("Target time to work off the backlog.", default="1m")] = 60.0,
    min_workers: Annotated[int, typer.Option(min=0, metavar="N", help="Lower bound of the suggestion.")] = 0,
    max_workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Upper bound of the suggestion.")
    ] = limits.WORKERS_MAX,
) -> Any:
    """Suggest the number of workers of a group from the rates of the last minute.

    Rates are messages per second.

    Example: penstock autoscale orders --group billing --target-drain 5m
    """
    terms = {"target_drain_s": target_drain, "min_workers": min_workers, "max_workers": max_workers}
    return remote.ask("autoscale", queue=queue, group=group, **terms)


@remote_command(SCHEDULED)
def scheduled(
    remote: Remote,
    queue: QueueArgument,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Continue where an earlier list ended.")] = None,
) -> Any:
    """List the messages that are scheduled for later, with the times at which they are due.

    In the order in which they were published. penstock cancel and penstock reschedule take their ids.

    Example: penstock scheduled orders
    """
    return remote.ask("scheduled", queue=queue, limit=limit, after=after)


def explain(
    queue: QueueArgument,
    message: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of the message; the head of the queue if left out.")
    ] = None,
    group: Group = "default",
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Explain why a message, or the head of the queue, is not being delivered now.

    Example: penstock explain orders --group billing
    """
    remote = Remote(url)
    answer = remote.ask("explain", queue=queue, id=message, group=group)
    if output is Output.json:
        show(answer, output)
        return
    if not answer["messages"]:
        typer.echo(f"nothing waits in {answer['queue']} for group {group}")
    for entry in answer["messages"]:
        place = f" at {entry['partition']}:{entry['offset']}" if entry["offset"] is not None else ""
        typer.echo(f"{entry['id']}{place}, {entry['state']}: {entry['text']}")
    if answer["last_asked_at_ms"] is None:
        _print_other_groups(remote, queue, group)


def history(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="Id of the message, as printed by publish.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Show the events of a message, as far back as the journal of the server goes.

    Example: penstock history orders 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    answer = Remote(url).ask("history", queue=queue, id=message)
    show(answer, output, EVENTS)
    if output is Output.table and not answer["complete"]:
        typer.echo("the beginning is missing: the journal does not go back that far")


def _print_other_groups(remote: Remote, queue: str, group: str) -> None:
    """Print the existing groups if the requested group does not exist: its name is probably misspelled or missing."""
    others = [each["group"] for each in remote.ask("groups", queue=queue)["groups"]]
    if others and group not in others:
        typer.echo(f"there is no group {group} in this queue yet, but {', '.join(others)}: choose one with --group")

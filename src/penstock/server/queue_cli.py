"""`penstock queues`, `stats`, `autoscale`, `explain` and `history`: inspect a running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import limits
from penstock.server.completion import complete_queue
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import (
    URL_DEFAULT,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    Yes,
    confirmed,
    errors_in_one_line,
    show,
    value_of,
)

QUEUES = Listing(
    "queues", ("queue", "depth", "config.order", "config.partitions", "config.lease_ms", "config.max_retries")
)
EVENTS = Listing(
    "events",
    ("at_ms", "kind", "group", "consumer", "attempt", "lease", "reason", "error", "due_at_ms", "deadline_at_ms"),
)


Group = Annotated[str, typer.Option(help="In this consumer group.")]


def queues(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", help="Show the settings of this queue.", autocompletion=complete_queue),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only queues whose full path starts with this.")] = "",
    page: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change this setting, or create the queue with it; asks before stored messages are discarded.",
        ),
    ] = None,
    yes: Yes = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """List the queues, or show and change one."""
    with errors_in_one_line():
        remote = Remote(url)
        if path is None:
            if change:
                raise typer.BadParameter("--set needs a QUEUE")
            show(remote.get("/v1/queues", prefix=prefix or None, page=page, limit=limit), output, QUEUES)
        elif change:
            show(_changed(remote, path, dict(map(_assignment, change)), yes), output)
        else:
            show(remote.get(f"/v1/queues/{path}"), output)


def stats(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Show this queue only.", autocompletion=complete_queue)
    ] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Show the statistics of the server or of one queue."""
    with errors_in_one_line():
        remote = Remote(url)
        show(remote.get("/v1/stats", queue=queue) if queue else remote.get("/v1/stats/summary"), output)


def autoscale(
    queue: QueueArgument,
    group: Group = "default",
    target_drain: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Target time to work off the backlog.")
    ] = 60.0,
    min_workers: Annotated[int, typer.Option(min=0, metavar="N", help="Lower bound of the suggestion.")] = 0,
    max_workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Upper bound of the suggestion.")
    ] = limits.WORKERS_MAX,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Suggest the number of workers of a group from the rates of the last minute.

    Rates are messages per second.
    """
    with errors_in_one_line():
        terms = {"target_drain_s": target_drain, "min_workers": min_workers, "max_workers": max_workers}
        answer = Remote(url).get("/v1/autoscale", queue=queue, group=group, **terms)
        show(_with_unbounded_as_text(answer) if output is Output.table else answer, output)


def explain(
    queue: QueueArgument,
    message: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of the message; the head of the queue if left out.")
    ] = None,
    group: Group = "default",
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Explain why a message, or the head of the queue, is not being delivered now."""
    with errors_in_one_line():
        remote = Remote(url)
        answer = remote.get("/v1/explain", queue=queue, id=message, group=group)
        if output is Output.json:
            show(answer, output)
        elif not answer["messages"]:
            typer.echo(f"nothing waits in {answer['queue']} for group {group}")
        for entry in answer["messages"] if output is Output.table else ():
            place = f" at {entry['partition']}:{entry['offset']}" if entry["offset"] is not None else ""
            typer.echo(f"{entry['id']}{place}, {entry['state']}: {entry['text']}")
        if output is Output.table and answer["last_asked_at_ms"] is None:
            _print_other_groups(remote, queue, group)


def history(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="Id of the message, as printed by publish.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Show the events of a message, as far back as the journal of the server goes."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/history", queue=queue, id=message)
        if output is Output.json:
            show(answer, output)
            return
        show({**answer, "total": len(answer["events"])}, output, EVENTS)
        if not answer["complete"]:
            typer.echo("the beginning is missing: the journal does not go back that far")


def _print_other_groups(remote: Remote, queue: str, group: str) -> None:
    """Print the existing groups if the requested group does not exist: its name is probably misspelled or missing."""
    others = [each["group"] for each in remote.get("/v1/groups", queue=queue)["groups"]]
    if others and group not in others:
        typer.echo(f"there is no group {group} in this queue yet, but {', '.join(others)}: choose one with --group")


def _with_unbounded_as_text(signal: dict[str, Any]) -> dict[str, Any]:
    """Replace the number that stands for "unbounded", which the API needs for scalers, by text."""
    shown = {name: value for name, value in signal.items() if name != "at_ms"}
    if shown["mean_service_time_s"] < 0:
        shown["mean_service_time_s"] = None
    if shown["time_to_drain_s"] < 0:
        shown["time_to_drain_s"] = "never, at these rates"
    return shown


def _changed(remote: Remote, path: str, values: dict[str, Any], yes: bool) -> Any:
    def question(lost: dict[str, int]) -> str:
        parts = [
            f"{lost['messages']} stored messages and {lost['dead_letters']} dead letters would be discarded",
            f"{lost['messages_sooner']} and {lost['dead_letters_sooner']} more would be kept for a shorter time",
        ]
        return f"{path}: {'; '.join(parts)}. Change it?"

    return confirmed(lambda query: remote.call("PUT", f"/v1/queues/{path}", body=values, query=query), question, yes)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set {text}: write KEY=VALUE")
    decoded = value_of(value.encode())
    return name, value if isinstance(decoded, bytes) else decoded

"""`penstock dlq`: list, show, redrive and delete dead letters."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.errors import NotFound
from penstock.server.completion import complete_running_redrive
from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Limit,
    Output,
    OutputOption,
    Page,
    QueueArgument,
    Url,
    Yes,
    confirmed,
    remote_command,
    show,
)
from penstock.server.times import duration_option

LETTERS = Listing("messages", ("id", "group", "attempt", "reason", "error", "payload", "payload_b64"))
REDRIVES = Listing(
    "redrives",
    ("redrive_id", "status", "redriven", "skipped", "started_at_ms", "ended_at_ms", "group", "filter", "target",
     "error"),
)  # fmt: skip
LOOK_EVERY_S = 0.3

dlq = command_group("Dead letters: list them, redrive them to a queue, or delete them.", named="list")

Filter = Annotated[
    str | None,
    typer.Option("--filter", "-f", metavar="FILTER", help='Like: error ~ "timeout" and age > 1h'),
]
Group = Annotated[str | None, typer.Option(help="Only dead letters of this group.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given repeatedly.")]
Everything = Annotated[bool, typer.Option("--all", help="Every dead letter of the queue.")]


@dlq.command("list")
@remote_command(LETTERS)
def list_letters(
    remote: Remote,
    queue: QueueArgument,
    filter: Filter = None,
    group: Group = None,
    page: Page = 1,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Continue where an earlier list ended.")] = None,
) -> Any:
    """List the dead letters of a queue, oldest first.

    Example: penstock dlq orders --filter 'error ~ "timeout" and age > 1h'
    """
    return remote.ask("dead_letters", queue=queue, filter=filter, group=group, page=page, limit=limit, after=after)


@dlq.command("show")
def show_letter(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Show the dead letters of one message, one per group that gave it up.

    Example: penstock dlq show orders 01JPX3J8M5S4G7Q2V9W0E1R2T3
    """
    quoted = message.upper().replace("\\", "").replace('"', "")
    found = Remote(url).ask("dead_letters", queue=queue, filter=f'id = "{quoted}"')["messages"]
    if not found:
        raise NotFound(f"message {message} is not among the dead letters of {queue}")
    for letter in found:
        show(letter, output)


@dlq.command()
def redrive(
    queue: QueueArgument,
    filter: Filter = None,
    ids: Ids = None,
    everything: Everything = False,
    group: Group = None,
    target: Annotated[
        str | None, typer.Option(help="Publish copies to this queue instead of returning the messages to their group.")
    ] = None,
    delay: Annotated[float, duration_option("Delay before the delivery.", default="none")] = 0.0,
    priority: Annotated[int | None, typer.Option(help="Priority of the copies; needs --target.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Messages per second.")] = 100,
    redrive_id: Annotated[
        str | None, typer.Option("--redrive-id", help="A redrive with the same id is not run twice.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Redrive. Without this option the command only counts.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return without waiting for the end.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Return dead letters to the group that gave them up, or copy them to another queue.

    Without --run the command counts them and shows a few. With --run the server does the work and continues if the
    command ends.

    Example: penstock dlq redrive orders --filter 'reason = "max_retries"' --run
    """
    remote = Remote(url)
    body: dict[str, Any] = {
        "queue": queue, **_chosen(filter, ids, everything), "group": group, "target": target,
        "delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX),
        "priority": priority, "rate_per_s": rate, "redrive_id": redrive_id,
    }  # fmt: skip
    answer = remote.ask("redrive", **body, dry_run=True)
    if not run:
        if output is Output.table:
            typer.echo(f"{answer['count']} dead letters would be redriven; add --run to do it")
            answer = {"messages": answer["sample"]}
        show(answer, output, LETTERS)
        return
    count, body["redrive_id"] = answer["count"], answer["redrive_id"]
    answer = remote.ask("redrive", **body, dry_run=False)
    if not detach:
        answer = _await_redrive(remote, queue, answer, count)
    show(answer, output)
    if answer["status"] == "failed":
        raise typer.Exit(EXIT_REFUSED)


@dlq.command()
@remote_command(REDRIVES)
def redrives(remote: Remote, queue: QueueArgument) -> Any:
    """List the redrives of a queue: the progress of running ones and the result of the latest ended ones.

    Example: penstock dlq redrives orders
    """
    return remote.ask("redrives", queue=queue)


@dlq.command()
@remote_command()
def stop(
    remote: Remote,
    queue: QueueArgument,
    redrive_id: Annotated[
        str,
        typer.Argument(
            metavar="REDRIVE_ID",
            help="Id of the redrive, as shown by dlq redrives.",
            autocompletion=complete_running_redrive,
        ),
    ],
) -> Any:
    """Stop a redrive. Messages it has moved stay moved; the rest stay dead letters.

    Stopping a redrive that has ended changes nothing.

    Example: penstock dlq stop orders nightly
    """
    return remote.ask("stop_redrive", queue=queue, redrive_id=redrive_id)


@dlq.command()
@remote_command()
def delete(
    remote: Remote,
    queue: QueueArgument,
    filter: Filter = None,
    ids: Ids = None,
    everything: Everything = False,
    group: Group = None,
    yes: Yes = False,
) -> Any:
    """Delete dead letters for good. Asks first.

    Example: penstock dlq delete orders --filter 'age > 30d'
    """
    chosen = _chosen(filter, ids, everything)
    return confirmed(
        lambda query: remote.ask("delete_dead_letters", queue=queue, group=group, **chosen, **query),
        lambda lost: f"Delete {lost['dead_letters']} dead letters of {queue}?",
        yes,
    )


def _chosen(filter: str | None, ids: list[str] | None, everything: bool) -> dict[str, Any]:
    if sum((filter is not None, bool(ids), everything)) != 1:
        raise typer.BadParameter("give one of --filter, --id and --all")
    return {"ids": ids} if ids else {"filter": filter or ""}


def _await_redrive(remote: Remote, queue: str, answer: Any, count: int) -> Any:
    """Poll a redrive until it has ended; show its progress on standard error."""
    with typer.progressbar(length=max(count, 1), label="redriving", file=typer.get_text_stream("stderr")) as bar:
        moved = 0
        while True:
            done = answer["redriven"] + answer["skipped"]
            bar.update(done - moved)
            moved = done
            if answer["status"] != "running":
                return answer
            time.sleep(LOOK_EVERY_S)
            (answer,) = remote.ask("redrives", queue=queue, redrive_id=answer["redrive_id"])["redrives"]

"""`penstock dlq`: list, show, redrive and delete dead letters."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.errors import NotFound
from penstock.server.completion import complete_running_redrive
from penstock.server.lazy_commands import ListByDefault
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
)
from penstock.server.times import utc_text

LETTERS = Listing("messages", ("id", "group", "attempt", "reason", "error", "payload", "payload_b64"))
REDRIVES = Listing(
    "redrives",
    ("redrive_id", "status", "redriven", "skipped", "started", "ended", "group", "filter", "target", "error"),
)
LOOK_EVERY_S = 0.3


dlq = typer.Typer(
    cls=ListByDefault,
    help="Dead letters: list them, redrive them to a queue, or delete them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Filter = Annotated[
    str | None,
    typer.Option("--filter", "-f", metavar="FILTER", help='Like: error ~ "timeout" and age > 1h'),
]
Group = Annotated[str | None, typer.Option(help="Only dead letters of this group.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given repeatedly.")]
Everything = Annotated[bool, typer.Option("--all", help="Every dead letter of the queue.")]


@dlq.command("list")
def list_letters(
    queue: QueueArgument,
    filter: Filter = None,
    group: Group = None,
    page: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """The dead letters of a queue, oldest first."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/dlq", queue=queue, filter=filter, group=group, page=page, limit=limit)
        if output is Output.table and answer["total"] is None:
            # The server omits the total if a filter would have to scan too many dead letters; the table needs a number.
            answer["total"] = len(answer["messages"])
        show(answer, output, LETTERS)


@dlq.command("show")
def show_letter(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Show the dead letters of one message, one per group that gave it up."""
    with errors_in_one_line():
        quoted = message.upper().replace("\\", "").replace('"', "")
        found = Remote(url).get("/v1/dlq", queue=queue, filter=f'id = "{quoted}"')["messages"]
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
    delay: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Delay before the delivery.")] = 0.0,
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
    """
    with errors_in_one_line():
        remote = Remote(url)
        body: dict[str, Any] = {
            "queue": queue, **_chosen(filter, ids, everything), "group": group, "target": target,
            "delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX),
            "priority": priority, "rate_per_s": rate, "redrive_id": redrive_id,
        }  # fmt: skip
        answer = remote.call("POST", "/v1/dlq/redrive", body={**body, "dry_run": True})
        if not run:
            if output is Output.table:
                typer.echo(f"{answer['count']} dead letters would be redriven; add --run to do it")
                answer = {
                    "messages": answer["sample"],
                    "total": answer["count"],
                    "page": 1,
                    "limit": len(answer["sample"]),
                }
            show(answer, output, LETTERS)
            return
        count, body["redrive_id"] = answer["count"], answer["redrive_id"]
        answer = remote.call("POST", "/v1/dlq/redrive", body={**body, "dry_run": False})
        if not detach:
            answer = _await_redrive(remote, queue, answer, count)
        show(answer, output)
        if answer["status"] == "failed":
            raise typer.Exit(1)


@dlq.command()
def redrives(queue: QueueArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """List the redrives of a queue: the progress of running ones and the result of the latest ended ones."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/dlq/redrives", queue=queue)
        if output is Output.table:
            answer = {"redrives": [_readable(each) for each in answer["redrives"]], "total": len(answer["redrives"])}
        show(answer, output, REDRIVES)


@dlq.command()
def stop(
    queue: QueueArgument,
    redrive_id: Annotated[
        str,
        typer.Argument(
            metavar="REDRIVE_ID",
            help="Id of the redrive, as shown by dlq redrives.",
            autocompletion=complete_running_redrive,
        ),
    ],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Stop a redrive. Messages it has moved stay moved; the rest stay dead letters.

    Stopping a redrive that has ended changes nothing.
    """
    with errors_in_one_line():
        body = {"queue": queue, "redrive_id": redrive_id}
        answer = Remote(url).call("POST", "/v1/dlq/redrive/stop", body=body)
        show(_readable(answer) if output is Output.table else answer, output)


@dlq.command()
def delete(
    queue: QueueArgument,
    filter: Filter = None,
    ids: Ids = None,
    everything: Everything = False,
    group: Group = None,
    yes: Yes = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Delete dead letters for good. Asks first."""
    with errors_in_one_line():
        remote = Remote(url)
        body = {"queue": queue, **_chosen(filter, ids, everything), "group": group}
        answer = confirmed(
            lambda query: remote.call("POST", "/v1/dlq/delete", body=body, query=query),
            lambda lost: f"Delete {lost['dead_letters']} dead letters of {queue}?",
            yes,
        )
        show(answer, output)


def _chosen(filter: str | None, ids: list[str] | None, everything: bool) -> dict[str, Any]:
    if sum((filter is not None, bool(ids), everything)) != 1:
        raise typer.BadParameter("give one of --filter, --id and --all")
    return {"ids": ids} if ids else {"filter": filter or ""}


def _readable(redrive: dict[str, Any]) -> dict[str, Any]:
    """The dead letter with times as text and without empty fields."""
    shown = {name: None if value == "" else value for name, value in redrive.items() if not name.endswith("_at_ms")}
    times = {name: redrive[f"{name}_at_ms"] for name in ("started", "ended")}
    return shown | {name: None if ms is None else utc_text(ms) for name, ms in times.items()}


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
            (answer,) = remote.get("/v1/dlq/redrives", queue=queue, redrive_id=answer["redrive_id"])["redrives"]

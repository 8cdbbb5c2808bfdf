"""`penstock dlq`: what was given up, and what to do about it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import limits
from penstock.client.lowlevel import milliseconds
from penstock.errors import NotFound
from penstock.server.completion import complete_running_redrive
from penstock.server.moment import in_utc
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

LETTERS = Listing("messages", ("id", "group", "attempt", "reason", "error", "payload", "payload_b64"))
REDRIVES = Listing(
    "redrives",
    ("redrive_id", "status", "redriven", "skipped", "started", "ended", "group", "filter", "target", "error"),
)
LOOK_EVERY_S = 0.3


class _ListByDefault(TyperGroup):
    """`penstock dlq orders` means `penstock dlq list orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


dlq = typer.Typer(
    cls=_ListByDefault,
    help="Dead letters: look at what failed for good, bring it back, or delete it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Filter = Annotated[
    str | None,
    typer.Option("--filter", "-f", metavar="FILTER", help='Like: error ~ "timeout" and age > 1h'),
]
Group = Annotated[str | None, typer.Option(help="Only what this group gave up.")]
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
            # The table has a place for a number. Of a filter over very many letters there is none.
            answer["total"] = len(answer["messages"])
        show(answer, output, LETTERS)


@dlq.command("show")
def show_letter(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="Of the message.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """All that is known about one message, for each group that gave it up."""
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
    target: Annotated[str | None, typer.Option(help="Publish copies here instead of giving them back.")] = None,
    delay: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Deliver no sooner than this.")] = 0.0,
    priority: Annotated[int | None, typer.Option(help="Of the copies; needs --target.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 100,
    redrive_id: Annotated[
        str | None, typer.Option("--redrive-id", help="The same id again does nothing twice.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Do it. Without this only say what would be done.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Bring dead letters back to the group that gave them up, or copy them to another queue.

    Without --run it counts and shows a few. With it the server does the work, also if you leave.
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
            answer = _watched(remote, queue, answer, count)
        show(answer, output)
        if answer["status"] == "failed":
            raise typer.Exit(1)


@dlq.command()
def redrives(queue: QueueArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """The redrives of a queue: how far those are that run, and how the latest ended."""
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
        typer.Argument(metavar="REDRIVE_ID", help="As dlq redrives shows it.", autocompletion=complete_running_redrive),
    ],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Let a redrive move no more. What it has moved stays moved, the rest stays dead.

    One that has ended already stays as it ended.
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
        raise typer.BadParameter("say which: one of --filter, --id and --all")
    return {"ids": ids} if ids else {"filter": filter or ""}


def _readable(redrive: dict[str, Any]) -> dict[str, Any]:
    """With its times as people write them, and nothing where there is nothing to say."""
    shown = {name: None if value == "" else value for name, value in redrive.items() if not name.endswith("_at_ms")}
    times = {name: redrive[f"{name}_at_ms"] for name in ("started", "ended")}
    return shown | {name: None if ms is None else in_utc(ms) for name, ms in times.items()}


def _watched(remote: Remote, queue: str, answer: Any, count: int) -> Any:
    """Show how far it is, on standard error, until it has ended."""
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

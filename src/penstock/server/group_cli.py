"""`penstock groups`: the groups that read a queue; created, moved to another place, deleted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import ListByDefault
from penstock.server.remote import Remote
from penstock.server.tables import print_group
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

MEMBERS = ("member", "generation", "partitions", "awaited", "giving_up", "heard_at_ms")
PROGRESS = ("partition", "owner", "lag", "floor", "next_offset")

groups = typer.Typer(
    cls=ListByDefault,
    help="Groups: how far each of them is; create, move and delete them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]
PLACE_HELP = "earliest, latest, at:EPOCH_MS, or PARTITION:OFFSET once or more."


@groups.command("list")
def list_groups(queue: QueueArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """List the groups of a queue: their lag, the messages that only they keep, and their members with partitions."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/groups", queue=queue)
        if output is Output.json:
            show(answer, output)
        for group in answer["groups"] if output is Output.table else ():
            print_group(group, MEMBERS, PROGRESS)
        if output is Output.table and not answer["groups"]:
            typer.echo("no groups")


@groups.command()
def create(
    queue: QueueArgument,
    group: GroupArgument,
    start: Annotated[list[str] | None, typer.Option(metavar="PLACE", help=f"Where it begins: {PLACE_HELP}")] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a group before its first lease. One that exists stays where it is."""
    with errors_in_one_line():
        body = {"queue": queue, "group": group, "start": _place(start or ["earliest"])}
        show(Remote(url).call("PUT", "/v1/groups", body=body), output)


@groups.command()
def seek(
    queue: QueueArgument,
    group: GroupArgument,
    to: Annotated[list[str], typer.Option(metavar="PLACE", help=f"Where to: {PLACE_HELP}")],
    run: Annotated[bool, typer.Option("--run", help="Do it. Without this only say what would be done.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Let a group begin anew at another place: its leases end, and everything from there on is delivered again.

    Without --run it says what would be delivered again, and what skipped.
    """
    with errors_in_one_line():
        body = {"queue": queue, "group": group, "to": _place(to), "dry_run": not run}
        answer = Remote(url).call("POST", "/v1/groups/seek", body=body)
        if output is Output.table and not run:
            typer.echo(
                f"{answer['again']} messages would be delivered again, {answer['skipped']} skipped, and the leases of "
                f"{answer['leased']} would end; add --run to do it"
            )
        show(answer, output)


@groups.command()
def delete(
    queue: QueueArgument,
    group: GroupArgument,
    yes: Yes = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Delete a group, its dead letters, and what only it had not finished. Asks first."""
    with errors_in_one_line():
        remote = Remote(url)
        answer = confirmed(
            lambda query: remote.call("DELETE", "/v1/groups", query={"queue": queue, "group": group, **query}),
            lambda lost: (
                f"Delete group {group} of {queue}, with {lost['dead_letters']} dead letters and "
                f"{lost['messages']} messages that no other group needs?"
            ),
            yes,
        )
        show(answer, output)


def _place(words: list[str]) -> Any:
    if len(words) == 1 and (words[0] in ("earliest", "latest") or words[0].startswith("at:")):
        return words[0]
    offsets: dict[str, int] = {}
    for word in words:
        partition, _, offset = word.partition(":")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise typer.BadParameter(f"{word}: write {PLACE_HELP}")
        offsets[partition] = int(offset)
    return offsets

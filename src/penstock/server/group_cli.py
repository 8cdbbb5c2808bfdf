"""`penstock groups`: the groups that read a queue; created, moved to another place, deleted."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import print_group
from penstock.server.terminal import (
    URL_DEFAULT,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    Yes,
    confirm,
    confirmed,
    remote_command,
    show,
)
from penstock.server.times import FORMS, parse_start_offset

MEMBERS = ("member", "generation", "partitions", "awaited", "giving_up", "heard_at_ms")
PROGRESS = ("partition", "owner", "lag", "floor", "next_offset")

_PARTITION_AND_OFFSET = re.compile(r"(\d{1,9}):(\d{1,18})", re.ASCII)

groups = command_group("Groups: how far each of them is; create, move and delete them.", named="list")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
PLACE_HELP = f"earliest, latest, {FORMS} ago, a time like 2026-01-31T12:00, or PARTITION:OFFSET once or more."


@groups.command("list")
def list_groups(queue: QueueArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """List the groups of a queue: their lag, the messages that only they keep, and their members with partitions.

    Example: penstock groups orders
    """
    answer = Remote(url).ask("groups", queue=queue)
    if output is Output.json:
        show(answer, output)
        return
    for group in answer["groups"]:
        print_group(group, MEMBERS, PROGRESS)
    if not answer["groups"]:
        typer.echo("no groups")


@groups.command()
@remote_command()
def create(
    remote: Remote,
    queue: QueueArgument,
    group: GroupArgument,
    start: Annotated[
        list[str] | None, typer.Option(metavar="PLACE", help=f"Where it begins: {PLACE_HELP}  \\[default: earliest]")
    ] = None,
    yes: Yes = False,
) -> Any:
    """Create a group before its first lease. A group that exists stays where it is.

    Asks first if the group is the first of a queue that keeps messages until they are acked: messages that it skips are
    then removed.

    Example: penstock groups create orders audit --start latest
    """
    place = place_of(start or ["earliest"])
    if place != "earliest" and not yes:
        _ask_before_first_group(remote, queue, group)
    return remote.ask("put_group", queue=queue, group=group, start=place)


@groups.command()
def seek(
    queue: QueueArgument,
    group: GroupArgument,
    to: Annotated[list[str], typer.Option(metavar="PLACE", help=f"Where to: {PLACE_HELP}")],
    run: Annotated[bool, typer.Option("--run", help="Move the group. Without this the command only counts.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Move a group to another position: its leases end, and messages from there on are delivered again.

    Without --run the command counts the messages that would be delivered again or skipped.

    Example: penstock groups seek orders audit --to earliest --run
    """
    answer = Remote(url).ask("seek_group", queue=queue, group=group, to=place_of(to), dry_run=not run)
    if output is Output.table and not run:
        typer.echo(
            f"{answer['again']} messages would be delivered again, {answer['skipped']} skipped, and the leases of "
            f"{answer['leased']} would end; add --run to do it"
        )
    show(answer, output)


@groups.command()
@remote_command()
def delete(remote: Remote, queue: QueueArgument, group: GroupArgument, yes: Yes = False) -> Any:
    """Delete a group, its dead letters, and messages that only it had not finished. Asks first.

    Example: penstock groups delete orders audit
    """
    return confirmed(
        lambda query: remote.ask("delete_group", queue=queue, group=group, **query),
        lambda lost: (
            f"Delete group {group} of {queue}, with {lost['dead_letters']} dead letters and "
            f"{lost['messages']} messages that no other group needs?"
        ),
        yes,
    )


def _ask_before_first_group(remote: Remote, queue: str, group: str) -> None:
    if remote.ask("get_queue", queue=queue)["config"]["retention"]["mode"] == "keep":
        return
    stats = remote.ask("stats", queue=queue)
    if stats["depth"] and not stats["groups"]:
        confirm(
            f"{queue} has no group yet, and {stats['depth']} messages: those that {group} skips will be removed. "
            "Create it? This cannot be undone."
        )


def place_of(words: list[str]) -> str | dict[str, int]:
    """The place of a group as the API takes it."""
    offsets: dict[str, int] = {}
    for word in words:
        if found := _PARTITION_AND_OFFSET.fullmatch(word):
            offsets[found[1]] = int(found[2])
        elif len(words) > 1:
            raise typer.BadParameter(f"{word}: several places are written PARTITION:OFFSET")
        elif word == "latest" or word.startswith("at:"):
            return word
        else:
            return parse_start_offset(word)
    return offsets

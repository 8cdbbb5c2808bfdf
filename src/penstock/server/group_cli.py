"""`penstock groups`: the groups that read a queue; created, moved to another place, deleted."""

from __future__ import annotations

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
    confirmed,
    remote_command,
    show,
)

MEMBERS = ("member", "generation", "partitions", "awaited", "giving_up", "heard_at_ms")
PROGRESS = ("partition", "owner", "lag", "floor", "next_offset")

groups = command_group("Groups: how far each of them is; create, move and delete them.", named="list")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
PLACE_HELP = "earliest, latest, at:EPOCH_MS, or PARTITION:OFFSET once or more."


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
    start: Annotated[list[str] | None, typer.Option(metavar="PLACE", help=f"Where it begins: {PLACE_HELP}")] = None,
) -> Any:
    """Create a group before its first lease. A group that exists stays where it is.

    Example: penstock groups create orders audit --start latest
    """
    return remote.ask("put_group", queue=queue, group=group, start=_place(start or ["earliest"]))


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
    answer = Remote(url).ask("seek_group", queue=queue, group=group, to=_place(to), dry_run=not run)
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

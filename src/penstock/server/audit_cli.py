"""`penstock audit`: read the audit trail of a server, or verify its file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import EXIT_REFUSED, Output, OutputOption, remote_command, show

ENTRIES = Listing(
    "entries", ("sequence", "at_ms", "actor_kind", "actor", "address", "operation", "object", "result", "request")
)

audit = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="The audit trail of a server with --auth keys.")


@audit.command()
@remote_command(ENTRIES)
def tail(
    remote: Remote,
    after: Annotated[int | None, typer.Option(min=0, help="Begin behind this entry, not with the newest.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most entries.")] = 100,
) -> Any:
    """Show the newest entries of the audit trail, oldest first.

    Example: penstock audit tail --limit 20
    """
    return remote.ask("audit", after=after, limit=limit)


@audit.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="audit.log in the data directory, or a copy of it.")],
    output: OutputOption = Output.table,
) -> None:
    """Check the chain of the entries. Exits with 1 if an entry was changed, removed or inserted.

    Note down the newest hash elsewhere: with it, also a trail that was cut off at its end is told.

    Example: penstock audit verify penstock-data/audit.log
    """
    from penstock.errors import InvalidRequest
    from penstock.server.audit_log import verify as follow

    try:
        found = follow(file)
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror or error}") from None
    show({"entries": found.entries, "newest": found.newest, "problem": found.problem or None}, output)
    raise typer.Exit(EXIT_REFUSED if found.problem else 0)

"""`penstock logs`: the levels of a server's log, by category."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.terminal import remote_command

logs = command_group("Log levels of a running server, by category.", alone="show")


@logs.command("show")
@remote_command()
def show_levels(remote: Remote) -> Any:
    """Show the level of each category.

    Example: penstock logs
    """
    return remote.ask("log_levels")


@logs.command("set")
@remote_command()
def set_levels(
    remote: Remote,
    levels: Annotated[
        list[str] | None, typer.Argument(metavar="CATEGORY=LEVEL", help="Levels are debug, info, warning and error.")
    ] = None,
    per_s: Annotated[int | None, typer.Option(metavar="N", help="Lines of requests a second.")] = None,
) -> Any:
    """Set levels until the server stops. One line per request: requests=info.

    Example: penstock logs set requests=info connections=info --per-s 50
    """
    given = {}
    for text in levels or []:
        category, equals, level = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not CATEGORY=LEVEL, like requests=info")
        given[category] = level
    return remote.ask("set_log_levels", levels=given, requests_per_s=per_s)

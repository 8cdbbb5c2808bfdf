"""`penstock keys`: create, list, rotate and revoke API keys."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import remote_command
from penstock.server.times import parse_deliver_at

KEYS = Listing("keys", ("id", "name", "scopes", "rate", "created_at_ms", "expires_at_ms", "last_used_at_ms"))
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as shown by create and list.")]

keys = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="API keys of a server with --auth keys.")


@keys.command()
@remote_command()
def create(
    remote: Remote,
    name: Annotated[str, typer.Option(help="Name of the key: of the program or team that uses it.")],
    scope: Annotated[
        list[str], typer.Option(metavar="VERB:QUEUES", help="Like publish:shop/*; may be given more than once.")
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: 90d from now, or a time like 2031-01-31T12:00.")
    ] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Most requests, like 1000/m.")] = None,
) -> Any:
    """Create a key, and show it: this once.

    Example: penstock keys create --name billing --scope 'publish:shop/*' --scope consume:shop/orders --expires 90d
    """
    ends_ms = None if expires is None else parse_deliver_at(expires)
    return remote.ask("create_key", name=name, scopes=scope, rate=rate, expires_at_ms=ends_ms)


@keys.command("list")
@remote_command(KEYS)
def list_keys(remote: Remote) -> Any:
    """List the keys that this credential may administer, without their secrets.

    Example: penstock keys list
    """
    return remote.ask("list_keys")


@keys.command()
@remote_command()
def rotate(
    remote: Remote,
    id: IdArgument,
    now: Annotated[bool, typer.Option("--now", help="End the former secret at once, and not after a day.")] = False,
) -> Any:
    """Give a key a new secret, and show it. The former one is accepted for another day.

    Example: penstock keys rotate 4fQ8sKz0aXbY
    """
    return remote.ask("rotate_key", id=id, overlap_ms=0 if now else None)


@keys.command()
@remote_command()
def ticket(remote: Remote) -> Any:
    """Show a ticket of this key: it opens one WebSocket within 30 s, for a tool that can set no header.

    Example: penstock keys ticket -o json
    """
    return remote.ask("create_ticket")


@keys.command()
@remote_command()
def revoke(remote: Remote, id: IdArgument) -> Any:
    """End a key: its requests are refused, and its open streams are closed.

    Example: penstock keys revoke 4fQ8sKz0aXbY
    """
    return remote.ask("revoke_key", id=id)

"""`penstock encryption`: keys of encrypted queues, and erasing what they protect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.server.master_key_file import add_master_key
from penstock.server.remote import Remote
from penstock.server.terminal import Output, OutputOption, Yes, confirmed, remote_command, show

encryption = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Encryption at rest: keys, rotation, erasing."
)


@encryption.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Key file, created with mode 0600 if it is new.")],
    output: OutputOption = Output.table,
) -> None:
    """Make a key file for --encryption-key, or put a new key in front of its keys, for a rotation.

    After a rotation (`penstock encryption rotate`) the other lines of the file can be removed.

    Example: penstock encryption new-key /etc/penstock/encryption.key
    """
    id, keys = add_master_key(file)
    show({"file": str(file), "master_key": id, "keys": keys}, output)


@encryption.command()
@remote_command()
def status(remote: Remote) -> Any:
    """Show whether the server encrypts, and by which master key.

    Example: penstock encryption status
    """
    return remote.ask("encryption")


@encryption.command()
@remote_command()
def rotate(remote: Remote) -> Any:
    """Let the server read its key file again, and wrap its data keys by the first key. No message is rewritten.

    Example: penstock encryption rotate
    """
    return remote.ask("rotate_encryption_key")


@encryption.command()
@remote_command()
def erase(
    remote: Remote,
    target: Annotated[str, typer.Argument(metavar="QUEUE|NAMESPACE/*", help="Queue, or all queues of a namespace.")],
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only messages with this key; may be given more than once.")
    ] = None,
    yes: Yes = False,
) -> Any:
    """Destroy the data keys of a queue, of a namespace, or of the messages with a key. It cannot be undone.

    Shows what would be lost and asks first.

    Example: penstock encryption erase shop/orders --key user-42
    """
    asked = {"namespace": target.removesuffix("/*")} if target.endswith("/*") else {"queue": target}
    return confirmed(
        lambda query: remote.ask("erase", **asked, keys=key or None, **query),
        lambda lost: f"Erase {target}, with {lost['messages']} messages and {lost['dead_letters']} dead letters?",
        yes,
        name=target,
    )

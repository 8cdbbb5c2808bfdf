"""`penstock encryption`: keys of encrypted queues, and erasing what they protect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.server.master_key_file import add_master_key
from penstock.server.remote import Remote
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, Url, Yes, confirmed, errors_in_one_line, show

encryption = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Encryption at rest: keys, rotation, erasing."
)


@encryption.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Key file, created with mode 0600 if it is new.")],
) -> None:
    """Make a key file for --encryption-key, or put a new key in front of its keys, for a rotation.

    Example: penstock encryption new-key /etc/penstock/encryption.key
    """
    with errors_in_one_line():
        id, keys = add_master_key(file)
        typer.echo(f"key {id} is the first of {keys} in {file}")
        if keys > 1:
            typer.echo("`penstock encryption rotate` makes the server use it; then the other lines can be removed")


@encryption.command()
def status(output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Show whether the server encrypts, and by which master key.

    Example: penstock encryption status
    """
    with errors_in_one_line():
        show(Remote(url).get("/v1/encryption"), output)


@encryption.command()
def rotate(output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Let the server read its key file again, and wrap its data keys by the first key. No message is rewritten.

    Example: penstock encryption rotate
    """
    with errors_in_one_line():
        show(Remote(url).call("POST", "/v1/encryption/rotate"), output)


@encryption.command()
def erase(
    target: Annotated[str, typer.Argument(metavar="QUEUE|NAMESPACE/*", help="Queue, or all queues of a namespace.")],
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only messages with this key; may be given more than once.")
    ] = None,
    yes: Yes = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Destroy the data keys of a queue, of a namespace, or of the messages with a key. It cannot be undone.

    Shows what would be lost and asks first.

    Example: penstock encryption erase shop/orders --key user-42
    """
    asked: dict[str, Any] = {}
    if target.endswith("/*"):
        asked["namespace"] = target.removesuffix("/*")
    else:
        asked["queue"] = target
    if key:
        asked["keys"] = key
    with errors_in_one_line():
        remote = Remote(url)
        erased = confirmed(
            lambda query: remote.call("POST", "/v1/erase", body=asked, query=query),
            lambda lost: f"Erase {target}, with {lost['messages']} messages and {lost['dead_letters']} dead letters?",
            yes,
            name=target,
        )
        show(erased, output)

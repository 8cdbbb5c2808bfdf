"""`penstock holds`: the holds of archives, which keep messages and events until they are copied."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import Yes, confirm, remote_command

HOLDS = Listing("holds", ("name", "spanned_bytes", "max_bytes", "events", "queues", "set_at_ms", "lost_at_ms"))

holds = command_group("Holds: messages and events that are kept until an archive has copied them.", alone="list")


@holds.command("list")
@remote_command(HOLDS)
def list_holds(remote: Remote) -> Any:
    """List the holds: the bytes that each keeps, and the offsets that its archive has copied per queue and partition.

    Example: penstock holds
    """
    return remote.ask("list_holds")


@holds.command()
@remote_command(is_refusal=lambda answer: not answer["removed"])
def remove(
    remote: Remote, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the hold.")], yes: Yes = False
) -> Any:
    """Remove the hold of an archive that is no longer used. Asks first.

    Messages that were kept only for that archive are discarded. Exits with 1 if there is no such hold.

    Example: penstock holds remove lake-1
    """
    if not yes:
        kept = remote.ask("get_hold", name=name)["spanned_bytes"]
        question = f"Remove hold {name}, which keeps {kept} bytes? Its archive cannot continue without a gap."
        confirm(question)
    return remote.ask("delete_hold", name=name)

"""Print messages to the terminal, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer

from penstock.server.tables import printable
from penstock.server.terminal import Output

if TYPE_CHECKING:
    from penstock.client import Published, StoredMessage
    from penstock.client.lowlevel import LeasedMessage

_encode = msgspec.json.Encoder().encode


def print_published(published: Published, output: Output, *, quiet: bool) -> None:
    if quiet:
        return
    for message in published:
        typer.echo(message.id if output is Output.table else _encode(message._asdict()))


def print_message(message: LeasedMessage, output: Output) -> None:
    """Print a consumed message: the payload only, or all fields as JSON."""
    typer.echo(message.payload if output is Output.table else _encode({**_all_of(message), "attempt": message.attempt}))


def print_tailed(message: StoredMessage, output: Output, *, show_queue: bool) -> None:
    """Print a message of the log: publish time, position and the printable payload, or all fields as JSON."""
    if output is Output.json:
        typer.echo(_encode(_all_of(message)))
        return
    when = message.published_at.astimezone().strftime("%H:%M:%S.%f")[:-3]
    place = (
        f"{message.queue}:{message.partition}:{message.offset}"
        if show_queue
        else f"{message.partition}:{message.offset}"
    )
    key = f" [{printable(message.key)}]" if message.key else ""
    text = printable(message.payload.decode("utf-8", "replace"))
    # One write, so that an interrupted command leaves whole lines.
    typer.echo(f"{typer.style(when, dim=True)} {typer.style(place, fg='cyan')}{typer.style(key, fg='yellow')} {text}")


def _all_of(message: StoredMessage) -> dict[str, Any]:
    payload = {"payload": msgspec.Raw(message.payload)} if message.is_json else {"payload_b64": message.payload}
    return {
        "id": message.id,
        "queue": message.queue,
        "partition": message.partition,
        "offset": message.offset,
        **payload,
        "key": message.key,
        "priority": message.priority,
        "headers": message.headers,
        "published_at_ms": message.published_at_ms,
    }

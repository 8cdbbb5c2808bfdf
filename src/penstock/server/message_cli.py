"""`penstock publish`, `consume` and `tail`: publish messages, consume them, or follow the log."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import QueueNotFound, Unavailable
from penstock.server.completion import complete_queue
from penstock.server.message_lines import print_message, print_published, print_tailed
from penstock.server.publish_input import LineReader, Raw, open_input, read_single
from penstock.server.remote import Remote
from penstock.server.terminal import (
    EXIT_INTERRUPTED,
    URL_DEFAULT,
    Group,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    progress,
    until_interrupted,
)
from penstock.server.times import DUE, duration_option, parse_deliver_at, parse_start_offset

if TYPE_CHECKING:
    from penstock.client import Client as AsyncClient
    from penstock.client import Queue as AsyncQueue
    from penstock.sync import Client, Consumer, Queue

WAIT_FOR_QUEUE_S = 0.5

Wait = Annotated[float | None, duration_option("Stop after this time without a message.", default="never")]


def client_of(url: str, *, patient: bool = False) -> Client:
    """A client that retries only if `patient`; an interactive user can repeat the command."""
    from penstock.sync import Client

    if not patient:
        Remote(url).ask("health")
    return Client(url, retry_for=math.inf if patient else 0)


# -- publish ------------------------------------------------------------------------------------------------------


def publish(
    queue: QueueArgument,
    payload: Annotated[str | None, typer.Argument(help="JSON, or any text; - reads standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Publish the content of this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message per line of the input.")] = False,
    key: Annotated[str | None, typer.Option(help="Messages of one key stay in order.")] = None,
    delay: Annotated[float | None, duration_option("Delay before the delivery.")] = None,
    at: Annotated[str | None, DUE] = None,
    ttl: Annotated[float | None, duration_option("Time after which the message expires.")] = None,
    priority: Annotated[int | None, typer.Option(help="For queues with order lanes (0 to 4) or heap.")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant of the message; queues with fair_share serve tenants in turns.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Client id for deduplication: a second message with it within 24 hours is not stored.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be given repeatedly.")
    ] = None,
    raw: Raw = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the number of messages only.")] = False,
    output: Annotated[
        Output,
        typer.Option("--output", "-o", help="table: the id of each message; json: the id, partition and offset."),
    ] = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Publish a message, or one per line of a file or of standard input.

    A payload that is valid JSON is published as JSON, any other text as bytes; one that begins like JSON and is not is
    refused. Prints the id of each message. Lines are published while they are read, so the input may be of any size or
    endless.

    Example: penstock publish orders '{"order": 1}' --key user-42 --delay 10m
    """
    options: dict[str, Any] = {
        "key": key,
        "delay": delay,
        "deliver_at": None if at is None else parse_deliver_at(at) / 1000,
        "ttl": ttl,
        "priority": priority,
        "tenant": tenant,
        "headers": _headers(header),
    }
    if (payload is None) == (file is None):
        raise typer.BadParameter("give a PAYLOAD, or --file, or - for standard input")
    if delay is not None and at is not None:
        raise typer.BadParameter("give only one of --delay and --at")
    if lines and id is not None:
        raise typer.BadParameter("--id names one message, and --lines publishes many: leave out one of them")
    with open_input(payload, file) as source, client_of(url) as client:
        target = client.queue(queue)
        if not lines:
            value = read_single(source, raw=raw)
            print_published(target.publish_many([value], ids=[id], **options), output, quiet=quiet)
            return
        read = LineReader(source, raw=raw)
        count = 0
        with progress("publishing", read.size, show=quiet or read.size > LineReader.LARGE_BYTES) as advance:
            for payloads in read:
                print_published(target.publish_many(payloads, **options), output, quiet=quiet)
                count += len(payloads)
                advance(read.done)
        if quiet:
            typer.echo(f"{count} published")


def _headers(texts: list[str] | None) -> dict[str, str]:
    headers = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--header {text}: write NAME=VALUE")
        headers[name] = value
    return headers


# -- consume ------------------------------------------------------------------------------------------------------


def consume(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", help="Like orders or email/high.", autocompletion=complete_queue),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Instead of a QUEUE, all of a namespace (email) or a task of it (email/news).")
    ] = None,
    group: Group = "default",
    max_messages: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after this number of messages.")
    ] = None,
    wait: Wait = None,
    lease: Annotated[
        float | None,
        duration_option("Time after which messages of a consumer that died return.", default="lease_ms of the queue"),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Wait for a missing queue and for an unreachable server."),
    ] = False,
    assigned: Annotated[
        bool, typer.Option("--assigned", help="Join the group as a member, with a share of the partitions.")
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="table: payloads only; json: everything.")
    ] = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Print messages and acknowledge them, one line each, until Ctrl-C.

    A message is acknowledged after it was printed; messages that were not printed stay in the queue. Use penstock tail
    to read messages without consuming them. Exits with 130 after Ctrl-C.

    Example: penstock consume orders --max 10
    """
    if (queue is None) == (scope is None):
        raise typer.BadParameter("give a QUEUE, or a --scope")
    if follow and wait is not None:
        raise typer.BadParameter("--follow never stops by itself: leave out --wait")
    options: dict[str, Any] = {"group": group, "wait": wait, "lease": lease, "prefetch": 1 if max_messages else 100}
    with (
        until_interrupted() as interrupt,
        client_of(url, patient=follow) as client,
        _consumer(client, queue, scope, assigned, options, follow=follow) as messages,
    ):
        for printed, message in enumerate(messages, start=1):
            with interrupt.deferred(), message, interrupt.interruptible():
                print_message(message, output)
            if printed == max_messages:
                break


@contextlib.contextmanager
def _consumer(
    client: Client, queue: str | None, scope: str | None, assigned: bool, options: dict[str, Any], *, follow: bool
) -> Iterator[Consumer]:
    if scope is not None:
        with client.scope(scope).consume(**options) as messages:
            yield messages
        return
    target = client.queue(queue or "")
    if follow:
        _wait_for_queue(target)
    with target.consume(**options, assigned=assigned) as messages:
        yield messages


def _wait_for_queue(queue: Queue) -> None:
    said = False
    while True:
        try:
            queue.config()
            return
        except (QueueNotFound, Unavailable) as error:
            if not said:
                typer.echo(f"waiting: {error}", err=True)
            said = True
            time.sleep(WAIT_FOR_QUEUE_S)


# -- tail ---------------------------------------------------------------------------------------------------------


def tail(
    queues: Annotated[
        list[str], typer.Argument(metavar="QUEUE...", help="One or several.", autocompletion=complete_queue)
    ],
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", min=0, metavar="N", help="Start with this number of the latest messages of each partition."
        ),
    ] = 10,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Start at 30s, 10m, 2h, 7d ago, at a time like 2026-01-31T12:00, or at 0, the earliest.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after this number of messages.")
    ] = None,
    wait: Wait = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Print messages as they are published, until Ctrl-C, without a lease, an ack or a group.

    Consumed messages are removed from the log unless the queue has retention keep. Exits with 130 after Ctrl-C.

    Example: penstock tail orders --since 10m
    """
    start = None if since is None else parse_start_offset(since)
    Remote(url).ask("health")
    tailing = _Tail(output, start, last, max_messages, wait, show_queue=len(queues) > 1)
    asyncio.run(tailing.run(url, queues))
    if tailing.ended_by == signal.SIGINT:
        raise typer.Exit(EXIT_INTERRUPTED)


class _Tail:
    """Follows every partition of some queues at once."""

    def __init__(
        self, output: Output, start: str | None, last: int, max_messages: int | None, wait: float | None, *,
        show_queue: bool,
    ):  # fmt: skip
        self._output = output
        self._start = start
        self._last = last
        self._left = math.inf if max_messages is None else max_messages
        self._wait = wait
        self._show_queue = show_queue
        self._enough = asyncio.Event()
        self.ended_by: signal.Signals | None = None

    async def run(self, url: str, queues: list[str]) -> None:
        """Print until there is enough or a signal arrives. A signal takes effect between two messages."""
        from penstock.client import Client

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._end, number)
        async with Client(url, retry_for=0) as client:
            places = [place for queue in queues for place in await self._partitions(client, queue)]
            following = {asyncio.create_task(self._follow(*place)) for place in places}
            enough = asyncio.create_task(self._enough.wait())
            try:
                left: set[asyncio.Task[Any]] = set(following)
                while left and not enough.done():
                    done, _ = await asyncio.wait((*left, enough), return_when=asyncio.FIRST_COMPLETED)
                    left -= done
                    for task in done:
                        task.result()
            finally:
                for task in (*following, enough):
                    task.cancel()
                await asyncio.gather(*following, enough, return_exceptions=True)

    def _end(self, number: signal.Signals) -> None:
        self.ended_by = number
        self._enough.set()

    async def _partitions(self, client: AsyncClient, name: str) -> list[tuple[AsyncQueue, int, int | str]]:
        queue = client.queue(name)
        count = (await queue.config()).config.partitions
        return [(queue, partition, await self._begin(queue, partition)) for partition in range(count)]

    async def _begin(self, queue: AsyncQueue, partition: int) -> int | str:
        if self._start is not None:
            return self._start
        log = await queue.read(partition=partition, offset="latest", max=1)
        return max(log.start_offset, log.end_offset - self._last)

    async def _follow(self, queue: AsyncQueue, partition: int, offset: int | str) -> None:
        async for batch in queue.follow(partition=partition, offset=offset, wait=self._wait):
            for message in batch:
                if self._enough.is_set():
                    return
                print_tailed(message, self._output, show_queue=self._show_queue)
                self._left -= 1
                if self._left <= 0:
                    self._enough.set()
                await asyncio.sleep(0)  # signals, and the other partitions

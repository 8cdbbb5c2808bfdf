"""The `penstock` command.

`serve` runs a broker. Everything else talks to a running one over its public interface, so that whatever the command
line can do, a program can do as well. Exit codes: 0 done, 1 refused, 2 misused, 69 no server there, 78 bad settings.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock._version import __version__
from penstock.server.config import KEYS, ConfigError, load_settings
from penstock.server.dlq import dlq
from penstock.server.remote import Remote
from penstock.server.schedule_cli import schedule
from penstock.server.tables import Listing, print_group
from penstock.server.terminal import (
    EXIT_REFUSED,
    URL_DEFAULT,
    Output,
    OutputOption,
    QueueArgument,
    Url,
    errors_in_one_line,
    show,
    value_of,
)

if TYPE_CHECKING:
    from penstock.sync import Client, Message

app = typer.Typer(
    help="A durable message broker you can query.\n\nStart one with [bold]penstock serve[/bold], then "
    "[bold]penstock publish orders '{\"order\": 1}'[/bold] and [bold]penstock consume orders[/bold].",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


QUEUES = Listing(
    "queues", ("queue", "depth", "config.order", "config.partitions", "config.lease_ms", "config.max_retries")
)
EVENTS = Listing(
    "events",
    ("at_ms", "kind", "group", "consumer", "attempt", "lease", "reason", "error", "due_at_ms", "deadline_at_ms"),
)
MEMBERS = ("member", "generation", "partitions", "awaited", "giving_up", "heard_at_ms")
PROGRESS = ("partition", "owner", "lag", "floor", "next_offset")

# -- serve --------------------------------------------------------------------------------------------------------


def _flag(name: str, *more: str, metavar: str | None = None) -> Any:
    """An option of `serve`. Its words, choices and default are those of the setting, so they cannot differ."""
    words, choices, default = KEYS[name]
    option = f"--{name.replace('_', '-')}"
    if isinstance(default, bool):
        option = f"{option}/--no-{name.replace('_', '-')}"
    if choices:
        metavar = "|".join(choices)
    # Not the option's own default: a flag that was not given must not win over the file and the environment.
    return typer.Option(option, *more, help=f"{words}  \\[default: {default}]", metavar=metavar, show_default=False)


@app.command()
def serve(
    data_dir: Annotated[str | None, _flag("data_dir", "-d", metavar="DIR")] = None,
    listen: Annotated[str | None, _flag("listen", metavar="HOST:PORT")] = None,
    grpc: Annotated[str | None, _flag("grpc", metavar="HOST:PORT")] = None,
    store: Annotated[str | None, _flag("store", metavar="URL")] = None,
    fsync: Annotated[str | None, _flag("fsync")] = None,
    auto_create: Annotated[bool | None, _flag("auto_create")] = None,
    log_format: Annotated[str | None, _flag("log_format")] = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    shutdown_grace_s: Annotated[int | None, _flag("shutdown_grace_s", metavar="SECONDS")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as TOML; flags win over it.")] = None,
) -> None:
    """Run a broker until it is told to stop.

    Prints one line, [bold]ready http=…[/bold], when it accepts requests. SIGTERM or Ctrl-C drains and stops it.
    Every option can also be a key of the file, or a variable such as PENSTOCK_DATA_DIR.
    """
    flags = {key: value for key, value in locals().items() if key in KEYS}
    with errors_in_one_line():
        if not __debug__:
            raise ConfigError("assertions are part of the broker's safety, it does not run under python -O")
        settings = load_settings(flags, os.environ, config)
        if not settings.listen_address.is_loopback:
            raise ConfigError(
                f"listen: {settings.listen} can be reached from other machines, and this version has neither "
                "authentication nor TLS to protect it there; listen on 127.0.0.1 and put a proxy in front that has both"
            )
        from penstock.server import lifecycle
        from penstock.server.logging import configure_logging

        configure_logging(settings.log_format, settings.log_level)
        code = lifecycle.run(settings)
    raise typer.Exit(code)


# -- messages -----------------------------------------------------------------------------------------------------


@app.command()
def publish(
    queue: QueueArgument,
    payload: Annotated[str | None, typer.Argument(help="JSON, or any text; - reads standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Publish what is in this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message per line of the input.")] = False,
    key: Annotated[str | None, typer.Option(help="Messages of one key stay in order.")] = None,
    delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="Deliver no sooner than this.")] = None,
    priority: Annotated[int, typer.Option(help="For queues that order by priority.")] = 0,
    url: Url = URL_DEFAULT,
) -> None:
    """Publish a message, or one per line of a file.

    What is JSON is published as JSON, anything else as plain bytes. Prints the id of each message.
    """
    with errors_in_one_line():
        payloads = _input(payload, file, lines)
        with _client(url) as client:
            published = client.queue(queue).publish_many(payloads, key=key, delay=delay, priority=priority)
            for message in published:
                typer.echo(message.id)


@app.command()
def consume(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Like orders or email/high.")] = None,
    scope: Annotated[
        str | None, typer.Option(help="Instead of a QUEUE, all of a namespace (email) or a task of it (email/news).")
    ] = None,
    group: Annotated[str, typer.Option(help="Groups read a queue independently of each other.")] = "default",
    max_messages: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after so many messages.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop when nothing came for so long.  [default: never]")
    ] = None,
    assigned: Annotated[
        bool, typer.Option("--assigned", help="Join the group as a member, with a share of the partitions.")
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="table: payloads only; json: everything.")
    ] = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Print messages and acknowledge them, one line each, until Ctrl-C.

    A message is acknowledged after it was printed; what was not printed stays in the queue.
    """
    if (queue is None) == (scope is None):
        raise typer.BadParameter("give a QUEUE, or a --scope")
    with errors_in_one_line(), contextlib.suppress(KeyboardInterrupt), _client(url) as client:
        if scope is not None:
            messages = client.scope(scope).consume(group=group, wait=wait, prefetch=1 if max_messages else 100)
        else:
            messages = client.queue(queue or "").consume(
                group=group, wait=wait, prefetch=1 if max_messages else 100, assigned=assigned
            )
        for printed, message in enumerate(messages, start=1):
            with message:
                _print_message(message, output)
            if printed == max_messages:
                break


def _client(url: str) -> Client:
    from penstock.sync import Client

    Remote(url).get("/healthz")
    return Client(url, retry_for=0)


def _print_message(message: Message, output: Output) -> None:
    if output is Output.table:
        typer.echo(message.payload)
        return
    payload = {"payload": msgspec.Raw(message.payload)} if message.is_json else {"payload_b64": message.payload}
    typer.echo(
        msgspec.json.encode(
            {
                "id": message.id,
                "queue": message.queue,
                "partition": message.partition,
                "offset": message.offset,
                **payload,
                "key": message.key,
                "priority": message.priority,
                "headers": message.headers,
                "attempt": message.attempt,
                "published_at_ms": message.published_at_ms,
            }
        )
    )


def _input(payload: str | None, file: Path | None, lines: bool) -> list[Any]:
    """The payloads to publish, each as JSON value or as bytes."""
    if (payload is None) == (file is None):
        raise typer.BadParameter("give a PAYLOAD, or --file, or - for standard input")
    if file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    elif payload == "-":
        content = sys.stdin.buffer.read()
    else:
        content = (payload or "").encode()
    return [value_of(line) for line in content.splitlines() if line.strip()] if lines else [value_of(content)]


# -- a look at a server -------------------------------------------------------------------------------------------


@app.command()
def queues(
    path: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Show the settings of this queue.")] = None,
    prefix: Annotated[str, typer.Option(help="Only queues whose full path starts with this.")] = "",
    page: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; creates the queue.")
    ] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """List the queues, or show and change one."""
    with errors_in_one_line():
        remote = Remote(url)
        if path is None:
            if change:
                raise typer.BadParameter("--set needs a QUEUE")
            show(remote.get("/v1/queues", prefix=prefix or None, page=page, limit=limit), output, QUEUES)
        elif change:
            show(_changed(remote, path, dict(map(_assignment, change))), output)
        else:
            show(remote.get(f"/v1/queues/{path}"), output)


@app.command()
def stats(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Of this queue only.")] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """How the server, or one queue, is doing."""
    with errors_in_one_line():
        remote = Remote(url)
        show(remote.get("/v1/stats", queue=queue) if queue else remote.get("/v1/stats/summary"), output)


@app.command()
def groups(queue: QueueArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """The groups that read a queue: how far they are, their members, and who has which partition."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/groups", queue=queue)
        if output is Output.json:
            show(answer, output)
        for group in answer["groups"] if output is Output.table else ():
            print_group(group, MEMBERS, PROGRESS)
        if output is Output.table and not answer["groups"]:
            typer.echo("no groups")


@app.command()
def explain(
    queue: QueueArgument,
    message: Annotated[str | None, typer.Argument(metavar="[ID]", help="A message; the head if left out.")] = None,
    group: Annotated[str, typer.Option(help="In this consumer group.")] = "default",
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Why a message, or what is first in the queue, is not being delivered now."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/explain", queue=queue, id=message, group=group)
        if output is Output.json:
            show(answer, output)
        elif not answer["messages"]:
            typer.echo(f"nothing waits in {answer['queue']} for group {group}")
        for entry in answer["messages"] if output is Output.table else ():
            place = f" at {entry['partition']}:{entry['offset']}" if entry["offset"] is not None else ""
            typer.echo(f"{entry['id']}{place}, {entry['state']}: {entry['text']}")


@app.command()
def history(
    queue: QueueArgument,
    message: Annotated[str, typer.Argument(metavar="ID", help="The message's id, as publish answered it.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """What became of a message, as far back as the server's journal goes."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/history", queue=queue, id=message)
        if output is Output.json:
            show(answer, output)
            return
        show({**answer, "total": len(answer["events"])}, output, EVENTS)
        if not answer["complete"]:
            typer.echo("the beginning is missing: the journal does not go back that far")


def _changed(remote: Remote, path: str, values: dict[str, Any]) -> Any:
    from penstock.errors import QueueNotFound

    try:
        return remote.call("PATCH", f"/v1/queues/{path}", body=values)
    except QueueNotFound:
        return remote.call("PUT", f"/v1/queues/{path}", body=values)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set {text}: write KEY=VALUE")
    decoded = value_of(value.encode())
    return name, value if isinstance(decoded, bytes) else decoded


app.add_typer(schedule)
app.add_typer(dlq, name="dlq")


# -- the rest -----------------------------------------------------------------------------------------------------


@app.command()
def inspect(path: Annotated[Path, typer.Argument(help="A journal file, or a data directory.", exists=True)]) -> None:
    """Print what is in a journal, record by record. Reads only; the server may be running.

    Exits with 1 if something in it is damaged.
    """
    from penstock.journal.dump import dump

    with errors_in_one_line():
        damaged = dump(str(path), typer.echo)
    raise typer.Exit(EXIT_REFUSED if damaged else 0)


@app.command()
def doctor(
    data_dir: Annotated[str | None, _flag("data_dir", "-d", metavar="DIR")] = None,
    listen: Annotated[str | None, _flag("listen", metavar="HOST:PORT")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as TOML; flags win over it.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Check this machine: Python, ports, disk, clock; and for the pipeline Java and Spark.

    Says what to do about whatever is not right. Exits with 1 if a broker could not run here.
    """
    from penstock.server.doctor import examine

    with errors_in_one_line():
        settings = load_settings({"data_dir": data_dir, "listen": listen}, os.environ, config)
        findings = list(examine(settings))
        if output is Output.json:
            show({"findings": [finding._asdict() for finding in findings]}, output)
        for finding in findings if output is Output.table else ():
            hint = f"  ({finding.hint})" if finding.hint else ""
            typer.echo(f"{finding.verdict:8} {finding.name:10} {finding.found}{hint}")
    raise typer.Exit(EXIT_REFUSED if any(finding.verdict == "failed" for finding in findings) else 0)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"penstock {__version__}")


# Last, because it is made of what is above.

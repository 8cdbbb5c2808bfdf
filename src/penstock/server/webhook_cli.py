"""`penstock webhooks …`: send the messages of a group to a URL."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, QueueArgument, Url, errors_in_one_line, show

WEBHOOKS = Listing(
    "webhooks",
    ("id", "state", "queue", "group", "url", "delivery.circuit", "delivery.delivered", "delivery.failed"),
)
ATTEMPTS = Listing(
    "attempts", ("at_ms", "message_id", "attempt", "outcome", "status", "duration_ms", "error", "retry_at_ms")
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook, as shown by add and list.")]
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Like https://example.com/hooks.")]
FORMATS = "plain|cloudevents-structured|cloudevents-binary"
FORMAT_HELP = "Body of the request: the payload, or a CloudEvent."
DELAY_HELP = "Delay after a failure; give it once for each retry."
TIMEOUT_HELP = "Timeout of one attempt."
CONCURRENCY_HELP = "Concurrent requests."
DESCRIPTION_HELP = "Description shown in the list."

webhooks = typer.Typer(name="webhooks", help="Send the messages of a group to a URL.", no_args_is_help=True)


@webhooks.command("list")
def list_webhooks(
    queue: Annotated[str | None, typer.Option(help="Only those of this queue.")] = None,
    page: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """List the webhooks with their delivery counters."""
    with errors_in_one_line():
        show(Remote(url).get("/v1/webhooks", queue=queue, page=page, limit=limit), output, WEBHOOKS)


@webhooks.command()
def add(
    queue: QueueArgument,
    endpoint: UrlArgument,
    group: Annotated[str, typer.Option(help="Groups read a queue independently of each other.")] = "default",
    format: Annotated[str, typer.Option(metavar=FORMATS, help=FORMAT_HELP)] = "plain",
    retry_delay: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help=f"{DELAY_HELP}  \\[default: 9 retries in 3 days]"),
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help=f"{TIMEOUT_HELP}  \\[default: 15]")] = None,
    concurrency: Annotated[int | None, typer.Option(help=f"{CONCURRENCY_HELP}  \\[default: 4]")] = None,
    description: Annotated[str, typer.Option(help=DESCRIPTION_HELP)] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Send nothing until it is resumed.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Register a webhook. Shows the signing secret once; store it."""
    body: dict[str, Any] = {
        "queue": queue, "url": endpoint, "group": group, "format": format, "description": description, "paused": paused,
    }  # fmt: skip
    _call("POST", "/v1/webhooks", output, url, body | _terms(retry_delay, timeout, concurrency))


@webhooks.command()
def change(
    id: IdArgument,
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="Send to this one instead.")] = None,
    format: Annotated[str | None, typer.Option(metavar=FORMATS, help=FORMAT_HELP)] = None,
    retry_delay: Annotated[list[float] | None, typer.Option(metavar="SECONDS", help=DELAY_HELP)] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help=TIMEOUT_HELP)] = None,
    concurrency: Annotated[int | None, typer.Option(help=CONCURRENCY_HELP)] = None,
    description: Annotated[str | None, typer.Option(help=DESCRIPTION_HELP)] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Change a webhook. Settings that are not given, the secret, the queue and the group stay unchanged."""
    asked = {"url": endpoint, "format": format, "description": description}
    body = {name: value for name, value in asked.items() if value is not None}
    _call("PATCH", f"/v1/webhooks/{id}", output, url, body | _terms(retry_delay, timeout, concurrency))


@webhooks.command("show")
def show_webhook(id: IdArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Show a webhook with its delivery counters."""
    _call("GET", f"/v1/webhooks/{id}", output, url)


@webhooks.command()
def test(id: IdArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Send a test request to the endpoint. Exits with 1 if the endpoint did not accept it."""
    with errors_in_one_line():
        answer = Remote(url, timeout_s=90).call("POST", "/v1/webhooks/test", body={"id": id})
        show(answer, output)
    raise typer.Exit(0 if answer["outcome"] == "delivered" else 1)


@webhooks.command()
def pause(id: IdArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Pause a webhook until it is resumed."""
    _call("POST", "/v1/webhooks/pause", output, url, {"id": id})


@webhooks.command()
def resume(id: IdArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Resume a webhook, even if its endpoint answered 410 Gone."""
    _call("POST", "/v1/webhooks/resume", output, url, {"id": id})


@webhooks.command()
def rotate(
    id: IdArgument,
    overlap: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Time during which the previous secret signs as well.  \\[default: a day]"
        ),
    ] = None,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Replace the signing secret. Shows the new secret once; store it."""
    body: dict[str, Any] = {"id": id}
    if overlap is not None:
        body["overlap_ms"] = round(overlap * 1000)
    _call("POST", "/v1/webhooks/rotate", output, url, body)


@webhooks.command()
def remove(id: IdArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Remove a webhook. Messages of its group stay."""
    _call("DELETE", f"/v1/webhooks/{id}", output, url)


@webhooks.command()
def attempts(
    id: IdArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100)] = 20,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """List the latest delivery attempts, newest first."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/webhooks/attempts", id=id, limit=limit)
        if output is Output.table:
            answer = {**answer, "total": len(answer["attempts"])}
        show(answer, output, ATTEMPTS)


def _terms(retry_delay: list[float] | None, timeout: float | None, concurrency: int | None) -> dict[str, Any]:
    """The given options as fields of the API."""
    terms: dict[str, Any] = {}
    if retry_delay:
        terms["retry_delays_ms"] = [round(seconds * 1000) for seconds in retry_delay]
    if timeout is not None:
        terms["timeout_ms"] = round(timeout * 1000)
    if concurrency is not None:
        terms["concurrency"] = concurrency
    return terms


def _call(method: str, path: str, output: Output, url: str, body: object = None) -> None:
    with errors_in_one_line():
        show(Remote(url).call(method, path, body=body), output)

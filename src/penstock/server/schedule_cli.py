"""`penstock schedule …`: manage cron schedules that publish messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, Url, errors_in_one_line, show, value_of
from penstock.server.times import utc_text

SCHEDULES = Listing("schedules", ("name", "state", "cron", "timezone", "queue", "next", "fired", "error.message"))
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]

schedule = typer.Typer(name="schedule", help="Publish messages whenever a cron expression fires.", no_args_is_help=True)


@schedule.command("list")
def list_schedules(
    prefix: Annotated[str, typer.Option(help="Only schedules whose name starts with this.")] = "",
    page: Annotated[int, typer.Option(min=1)] = 1,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """List the schedules with their state and next fire time."""
    with errors_in_one_line():
        answer = Remote(url).get("/v1/schedules", prefix=prefix or None, page=page, limit=limit)
        if output is Output.table:
            answer["schedules"] = [_readable(each) for each in answer["schedules"]]
        show(answer, output, SCHEDULES)


@schedule.command("set")
def set_schedule(
    name: NameArgument,
    queue: Annotated[str, typer.Argument(metavar="QUEUE")],
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Like '0 3 * * *'; six fields begin with seconds.")],
    payload: Annotated[str, typer.Argument(help="JSON; a payload that is not JSON is published as bytes.")],
    timezone: Annotated[str, typer.Option(help="Like Europe/Berlin.")] = "UTC",
    catch_up: Annotated[str, typer.Option(metavar="all|latest|none", help="Missed fire times to catch up on.")] = "all",
    key: Annotated[str | None, typer.Option(help="Messages of one key stay in order.")] = None,
    priority: Annotated[int, typer.Option(help="For queues that order by priority.")] = 0,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Create a schedule, or change it."""
    value = value_of(payload.encode())
    message: dict[str, Any] = {"priority": priority}
    if isinstance(value, bytes):
        message["payload_b64"] = b64encode(value).decode()
    else:
        message["payload"] = value
    if key is not None:
        message["key"] = key
    body = {"queue": queue, "cron": cron, "timezone": timezone, "catch_up": catch_up, "message": message}
    _call("PUT", f"/v1/schedules/{name}", output, url, body)


@schedule.command("show")
def show_schedule(name: NameArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Show a schedule and its next five fire times."""
    _call("GET", f"/v1/schedules/{name}", output, url)


@schedule.command()
def pause(name: NameArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Pause a schedule until it is resumed."""
    _call("POST", f"/v1/schedules/{name}/pause", output, url)


@schedule.command()
def resume(name: NameArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Resume a schedule; its catch-up setting decides about missed fire times."""
    _call("POST", f"/v1/schedules/{name}/resume", output, url)


@schedule.command()
def delete(name: NameArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Remove a schedule. Messages it has published stay."""
    _call("DELETE", f"/v1/schedules/{name}", output, url)


def _call(method: str, path: str, output: Output, url: str, body: object = None) -> None:
    with errors_in_one_line():
        answer = Remote(url).call(method, path, body=body)
        show(_readable(answer) if output is Output.table and "next" in answer else answer, output)


def _readable(answer: dict[str, Any]) -> dict[str, Any]:
    """The schedule with fire times as text in UTC: this machine may not know the time zone of the schedule."""
    return {**answer, "next": ", ".join(map(utc_text, answer["next"])) or None}

"""`penstock schedule …`: manage cron schedules that publish messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import typer

from penstock.server.lazy_commands import command_group
from penstock.server.publish_input import Raw, payload_of
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import Limit, Page, QueueArgument, remote_command
from penstock.server.times import utc_text
from penstock.wire.schedules import CatchUp

SCHEDULES = Listing("schedules", ("name", "state", "cron", "timezone", "queue", "next", "fired", "error.message"))
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

schedule = command_group("Publish messages whenever a cron expression fires.", alone="list")


def _readable(answer: dict[str, Any]) -> dict[str, Any]:
    """The schedule with fire times as text in UTC: this machine may not know the time zone of the schedule."""
    return {**answer, "next": ", ".join(map(utc_text, answer["next"])) or None}


@schedule.command("list")
@remote_command(
    SCHEDULES, readable=lambda answer: {**answer, "schedules": [_readable(each) for each in answer["schedules"]]}
)
def list_schedules(
    remote: Remote,
    prefix: Annotated[str, typer.Option(help="Only schedules whose name starts with this.")] = "",
    page: Page = 1,
    limit: Limit = 50,
) -> Any:
    """List the schedules with their state and next fire time.

    Example: penstock schedule list
    """
    return remote.ask("list_schedules", prefix=prefix or None, page=page, limit=limit)


@schedule.command("set")
@remote_command(readable=_readable)
def set_schedule(
    remote: Remote,
    name: NameArgument,
    queue: QueueArgument,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Like '0 3 * * *'; six fields begin with seconds.")],
    payload: Annotated[str, typer.Argument(help="JSON, or any text.")],
    timezone: Annotated[str, typer.Option(help="Like Europe/Berlin.")] = "UTC",
    catch_up: Annotated[CatchUp, typer.Option(help="Missed fire times to catch up on.")] = "all",
    key: Annotated[str | None, typer.Option(help="Messages of one key stay in order.")] = None,
    priority: Annotated[int | None, typer.Option(help="For queues that order by priority.")] = None,
    raw: Raw = False,
) -> Any:
    """Create a schedule, or change it.

    Example: penstock schedule set nightly reports '0 3 * * *' '{"report": "sales"}' --timezone Europe/Berlin
    """
    value = payload_of(payload.encode(), raw=raw)
    given = {"payload_b64": b64encode(value).decode()} if isinstance(value, bytes) else {"payload": value}
    options = {"key": key, "priority": priority}
    message = given | {option: chosen for option, chosen in options.items() if chosen is not None}
    return remote.ask(
        "put_schedule", name=name, queue=queue, cron=cron, timezone=timezone, catch_up=catch_up, message=message
    )


@schedule.command("show")
@remote_command(readable=_readable)
def show_schedule(remote: Remote, name: NameArgument) -> Any:
    """Show a schedule and its next five fire times.

    Example: penstock schedule show nightly
    """
    return remote.ask("get_schedule", name=name)


@schedule.command()
@remote_command(readable=_readable)
def pause(remote: Remote, name: NameArgument) -> Any:
    """Pause a schedule until it is resumed.

    Example: penstock schedule pause nightly
    """
    return remote.ask("pause_schedule", name=name)


@schedule.command()
@remote_command(readable=_readable)
def resume(remote: Remote, name: NameArgument) -> Any:
    """Resume a schedule; its catch-up setting decides about missed fire times.

    Example: penstock schedule resume nightly
    """
    return remote.ask("resume_schedule", name=name)


@schedule.command()
@remote_command()
def delete(remote: Remote, name: NameArgument) -> Any:
    """Remove a schedule. Messages it has published stay.

    Example: penstock schedule delete nightly
    """
    return remote.ask("delete_schedule", name=name)

"""`penstock users`: people that log in to the dashboard."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, Url, errors_in_one_line, show

USERS = Listing("users", ("email", "role", "sessions", "created_at_ms", "changed_at_ms", "creator"))


class Role(StrEnum):
    viewer = "viewer"
    operator = "operator"
    admin = "admin"


EmailArgument = Annotated[str, typer.Argument(metavar="EMAIL", help="Email address of the person.")]
RoleOption = Annotated[
    Role,
    typer.Option(
        help="viewer: sees everything, payloads included. operator: also acts on queues and messages. admin: also "
        "keys, people and the audit trail."
    ),
]

users = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich",
    help="People that log in to the dashboard of a server with --auth keys.",
)  # fmt: skip


@users.command()
def add(email: EmailArgument, role: RoleOption, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Add a person. The password is asked for, or read from standard input: never an option, which others could see.

    Example: penstock users add ada@example.com --role operator
    """
    asked = {"email": email, "role": role.value, "password": _password()}
    with errors_in_one_line():
        show(Remote(url).call("POST", "/v1/users", body=asked), output)


@users.command("list")
def list_users(output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """List the people, their roles and their open sessions.

    Example: penstock users list
    """
    with errors_in_one_line():
        show(Remote(url).get("/v1/users"), output, USERS)


@users.command()
def role(
    email: EmailArgument,
    role: Annotated[Role, typer.Argument(help="The new role.")],
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Give a person another role, and end their sessions.

    Example: penstock users role ada@example.com viewer
    """
    with errors_in_one_line():
        show(Remote(url).call("PATCH", f"/v1/users/{email}", body={"role": role.value}), output)


@users.command()
def password(email: EmailArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Give a person another password, and end their sessions.

    Example: penstock users password ada@example.com
    """
    with errors_in_one_line():
        show(Remote(url).call("PATCH", f"/v1/users/{email}", body={"password": _password()}), output)


@users.command()
def remove(email: EmailArgument, output: OutputOption = Output.table, url: Url = URL_DEFAULT) -> None:
    """Remove a person, and end their sessions.

    Example: penstock users remove ada@example.com
    """
    with errors_in_one_line():
        show(Remote(url).call("DELETE", f"/v1/users/{email}"), output)


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")

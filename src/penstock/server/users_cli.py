"""`penstock users`: people that log in to the dashboard."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import remote_command

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
@remote_command()
def add(remote: Remote, email: EmailArgument, role: RoleOption) -> Any:
    """Add a person. The password is asked for, or read from standard input: never an option, which others could see.

    Example: penstock users add ada@example.com --role operator
    """
    return remote.ask("add_user", email=email, role=role.value, password=_password())


@users.command("list")
@remote_command(USERS)
def list_users(remote: Remote) -> Any:
    """List the people, their roles and their open sessions.

    Example: penstock users list
    """
    return remote.ask("list_users")


@users.command()
@remote_command()
def role(remote: Remote, email: EmailArgument, role: Annotated[Role, typer.Argument(help="The new role.")]) -> Any:
    """Give a person another role, and end their sessions.

    Example: penstock users role ada@example.com viewer
    """
    return remote.ask("change_user", email=email, role=role.value)


@users.command()
@remote_command()
def password(remote: Remote, email: EmailArgument) -> Any:
    """Give a person another password, and end their sessions.

    Example: penstock users password ada@example.com
    """
    return remote.ask("change_user", email=email, password=_password())


@users.command()
@remote_command()
def remove(remote: Remote, email: EmailArgument) -> Any:
    """Remove a person, and end their sessions.

    Example: penstock users remove ada@example.com
    """
    return remote.ask("remove_user", email=email)


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")

"""Commands that are loaded when somebody asks for them.

Typer imports every command and looks at all its parameters at every start, also at that of a server: longer than most
commands take themselves (ADR 0033).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group


class Place(NamedTuple):
    """Where a command is: a function, or the Typer of a noun that has verbs of its own; and where help lists it."""

    module: str
    name: str
    panel: str | None = None


class Commands(TyperGroup):
    """All their names, and those that were asked for."""

    places: ClassVar[dict[str, Place]]

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        # Typer says with the names alone which one was meant.
        self.commands: dict[str, Any] = dict.fromkeys(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.places and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name, self.places[cmd_name])
        return super().get_command(ctx, cmd_name)


class ListByDefault(TyperGroup):
    """`penstock dlq orders` means `penstock dlq list orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _load(name: str, place: Place) -> Any:
    command = getattr(import_module(place.module), place.name)
    alone = typer.Typer(rich_markup_mode="rich")
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=name)
    else:
        alone.command(name, rich_help_panel=place.panel)(command)
    return get_group(alone).commands[name]

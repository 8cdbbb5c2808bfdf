"""A Typer group that imports a command when it is first invoked.

Typer imports every command and inspects all its parameters at every start. That takes longer than most commands
themselves (ADR 0033).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group


class CommandReference(NamedTuple):
    """The import path of a command function or of a Typer with subcommands, and the help panel that lists it."""

    module: str
    name: str
    panel: str | None = None


class LazyCommandGroup(TyperGroup):
    """Knows the names of all commands; loads a command on its first lookup."""

    references: ClassVar[dict[str, CommandReference]]

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        # Typer needs the names to suggest the nearest one for a misspelled command.
        self.commands: dict[str, Any] = dict.fromkeys(self.references)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.references and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name, self.references[cmd_name])
        return super().get_command(ctx, cmd_name)


class ListByDefault(TyperGroup):
    """`penstock dlq orders` means `penstock dlq list orders`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _load(name: str, reference: CommandReference) -> Any:
    command = getattr(import_module(reference.module), reference.name)
    alone = typer.Typer(rich_markup_mode="rich")
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=name)
    else:
        alone.command(name, rich_help_panel=reference.panel)(command)
    return get_group(alone).commands[name]

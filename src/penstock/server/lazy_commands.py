"""Typer groups: one that imports a command when it is first invoked, and one with default subcommands.

Typer imports every command and inspects all its parameters at every start. That takes longer than most commands
themselves (ADR 0033).
"""

from __future__ import annotations

import inspect
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
    """Knows the names of all commands; loads a command on its first lookup. Prints expected errors in one line."""

    references: ClassVar[dict[str, CommandReference]]

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        # Typer needs the names to suggest the nearest one for a misspelled command.
        self.commands: dict[str, Any] = dict.fromkeys(self.references)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.references and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name, self.references[cmd_name])
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception:
            from penstock.server.terminal import errors_in_one_line

            with errors_in_one_line():
                raise


def command_group(help: str, *, alone: str | None = None, named: str | None = None) -> typer.Typer:
    """A Typer with subcommands.

    `alone` is the subcommand to run without arguments, or with options only. `named` is the subcommand of an argument
    that is not the name of a subcommand: `penstock dlq orders` means `penstock dlq list orders`.
    """

    class _DefaultingGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            first = args[0] if args else ""
            if named and first and first not in self.commands and not first.startswith("-"):
                args = [named, *args]
            elif alone and not ctx.resilient_parsing and first not in (*self.commands, *ctx.help_option_names):
                args = [alone, *args]
            return super().parse_args(ctx, args)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            found = super().shell_complete(ctx, incomplete)
            return found + self.commands[named].params[0].shell_complete(ctx, incomplete) if named else found

    return typer.Typer(cls=_DefaultingGroup, help=help, no_args_is_help=alone is None, rich_markup_mode="rich")


def _load(name: str, reference: CommandReference) -> Any:
    command = getattr(import_module(reference.module), reference.name)
    alone = typer.Typer(rich_markup_mode="rich")
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=name, rich_help_panel=reference.panel)
    else:
        alone.command(name, rich_help_panel=reference.panel)(command)
    loaded = get_group(alone).commands[name]
    _unwrap_help(loaded)
    return loaded


def _unwrap_help(command: Any) -> None:
    """Join the lines of each paragraph: Typer keeps the line breaks of the source, which do not fit the terminal."""
    command.help = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n"))
    for each in getattr(command, "commands", {}).values():
        _unwrap_help(each)

"""Shared by all commands: options, output, errors, confirmations, signals and progress."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from penstock.errors import Conflict, PenstockError
from penstock.server import completion
from penstock.server.config import ConfigError, DiskFailed, StoreRefused
from penstock.server.remote import Remote
from penstock.server.tables import Listing, print_listing, print_object

EXIT_REFUSED = 1
EXIT_NO_SERVER = 69
EXIT_DISK_FAILED = 74
EXIT_TAKEN_OVER = 75
EXIT_BAD_SETTINGS = 78
EXIT_INTERRUPTED = 130


class Output(StrEnum):
    table = "table"
    json = "json"


Url = Annotated[str, typer.Option("--url", envvar="PENSTOCK_URL", help="The server to talk to.")]
QueueArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="Like orders, email/high or shop/mail/high.", autocompletion=completion.complete_queue
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Format of the output.")]
URL_DEFAULT = completion.URL_DEFAULT
Group = Annotated[str, typer.Option(help="Groups read a queue independently of each other.")]
Page = Annotated[int, typer.Option(min=1, help="Number of the page.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Entries of a page.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def remote_command(
    listing: Listing | None = None,
    *,
    readable: Callable[[Any], Any] = lambda answer: answer,
    is_refusal: Callable[[Any], bool] = lambda _: False,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that calls a server and returns the reply.

    The command has the parameters of the function without the first, which is the `Remote`, and the options --output
    and --url. It prints the reply: as JSON, or as a table of what `readable` returns. Exits with 1 if `is_refusal`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        def command(*, output: OutputOption = Output.table, url: Url = URL_DEFAULT, **given: Any) -> None:
            answer = function(Remote(url), **given)
            show(answer if output is Output.json else readable(answer), output, listing)
            if is_refusal(answer):
                raise typer.Exit(EXIT_REFUSED)

        def parameters_of(of: Callable[..., Any]) -> list[inspect.Parameter]:
            return list(inspect.signature(of, eval_str=True).parameters.values())

        own, common = parameters_of(function)[1:], parameters_of(command)[:2]
        given = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *common)]
        functools.update_wrapper(command, function)
        del command.__wrapped__  # type: ignore[attr-defined] # Typer would read the signature of the function
        command.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in given}
        return command

    return decorate


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn expected errors into one line on standard error and an exit code instead of a traceback."""
    try:
        yield
    except (ConfigError, StoreRefused) as error:
        code, text = EXIT_BAD_SETTINGS, str(error)
    except DiskFailed as error:
        code, text = EXIT_DISK_FAILED, error.message
    except PenstockError as error:
        from penstock.client.lowlevel import is_transport_failure

        code, text = EXIT_REFUSED, error.message
        if is_transport_failure(error):
            code, text = EXIT_NO_SERVER, f"{text} (--url names another server)"
    except BrokenPipeError:
        # The reader closed the pipe. Redirecting stdout prevents a second error when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    else:
        return
    typer.echo(f"penstock: {' '.join(text.split())}", err=True)
    raise typer.Exit(code)


def confirmed(
    call: Callable[[dict[str, str]], Any], question: Callable[[dict[str, int]], str], yes: bool, *, name: str = ""
) -> Any:
    """Call a destructive route: ask the user with `question`, which describes the loss, then repeat with the token.

    With `name` the user must type it. Raises typer.Abort if the user declines.
    """
    try:
        return call({})
    except Conflict as error:
        if "confirm" not in error.details:
            raise
        if not yes:
            confirm(f"{question(error.details['would_lose'])} This cannot be undone.", name=name)
        return call({"confirm": error.details["confirm"]})


def confirm(question: str, *, name: str = "") -> None:
    """Ask the user; with `name` it must be typed. Raises typer.Abort if the user declines, or typer.Exit if there is
    no terminal."""
    try:
        if not name:
            typer.confirm(question, abort=True, err=True)
            return
        asked = f"{question}\nType {name} to confirm, or use --yes"
        if typer.prompt(asked, default="", show_default=False, err=True) == name:
            return
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo("\npenstock: nothing was changed; where there is no terminal, --yes confirms", err=True)
        raise typer.Exit(EXIT_REFUSED) from None
    typer.echo("that is not its name; nothing was changed", err=True)
    raise typer.Abort


def show(answer: Any, output: Output, listing: Listing | None = None) -> None:
    if output is Output.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
    elif listing is not None:
        print_listing(answer, listing)
    else:
        print_object(answer)


@contextlib.contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error if it is a terminal; the yielded function sets the amount done."""
    if not show or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(label), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total or None)
        yield lambda done: bar.update(task, completed=done)


class InterruptFlag:
    """Set by Ctrl-C or SIGTERM. Setting it raises KeyboardInterrupt, which `deferred` delays until its block ends."""

    def __init__(self) -> None:
        self._deferred = False
        self._is_set = False
        self.number = 0
        """The signal that set it."""

    def set(self, number: int, _frame: Any) -> None:
        self._is_set = True
        self.number = number
        if not self._deferred:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Complete the block before the interrupt is raised: messages must not stay half settled."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self._is_set:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within `deferred`: allow an interrupt in a block that may wait without limit."""
        self._deferred = False
        try:
            if self._is_set:
                raise KeyboardInterrupt
            yield
        finally:
            self._deferred = True


@contextlib.contextmanager
def until_interrupted() -> Iterator[InterruptFlag]:
    """Run the block until Ctrl-C or SIGTERM, whose KeyboardInterrupt ends the block. Exits with 130 after Ctrl-C."""
    flag = InterruptFlag()
    is_main = threading.current_thread() is threading.main_thread()  # only the main thread may set signal handlers
    before = {number: signal.signal(number, flag.set) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if flag.number == signal.SIGINT:
        raise typer.Exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def spinner(label: str) -> Iterator[None]:
    """Show a spinner with the label while the block runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield

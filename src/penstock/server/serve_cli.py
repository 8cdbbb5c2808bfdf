"""`penstock serve` and `penstock doctor`: run a broker on this machine, or check its requirements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.server.config import KEYS, ConfigError, load_settings
from penstock.server.terminal import EXIT_REFUSED, Output, OutputOption, errors_in_one_line, show


def _flag(name: str, *more: str, metavar: str | None = None) -> Any:
    """An option of `serve` with the description, choices and default of its setting."""
    words, choices, default = KEYS[name]
    option = f"--{name.replace('_', '-')}"
    if isinstance(default, bool):
        option = f"{option}/--no-{name.replace('_', '-')}"
    if choices:
        metavar = "|".join(choices)
    if isinstance(default, tuple):
        default = ", ".join(default) or "none"
    # The option itself has no default: a flag that was not given must not override the file and the environment.
    shown = f"  \\[default: {default}]" if default != "" else ""
    return typer.Option(option, *more, help=f"{words}{shown}", metavar=metavar, show_default=False)


def serve(
    data_dir: Annotated[str | None, _flag("data_dir", "-d", metavar="DIR")] = None,
    listen: Annotated[str | None, _flag("listen", metavar="HOST:PORT")] = None,
    grpc: Annotated[str | None, _flag("grpc", metavar="HOST:PORT")] = None,
    store: Annotated[str | None, _flag("store", metavar="URL")] = None,
    fsync: Annotated[str | None, _flag("fsync")] = None,
    lake: Annotated[str | None, _flag("lake", metavar="DIR")] = None,
    auto_create: Annotated[bool | None, _flag("auto_create")] = None,
    dialect: Annotated[list[str] | None, _flag("dialect")] = None,
    webhook_allow: Annotated[str | None, _flag("webhook_allow", metavar="NETWORKS")] = None,
    log_format: Annotated[str | None, _flag("log_format")] = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    allowed_host: Annotated[list[str] | None, _flag("allowed_host", metavar="NAME")] = None,
    allowed_origin: Annotated[list[str] | None, _flag("allowed_origin", metavar="ORIGIN")] = None,
    shutdown_grace_s: Annotated[int | None, _flag("shutdown_grace_s", metavar="SECONDS")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with settings; flags override it.")
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, which drains and stops it.

    Prints one line, [bold]ready http=… grpc=…[/bold], when it accepts requests. Every option is also a key of the
    settings file and an environment variable such as PENSTOCK_DATA_DIR.
    """
    # Typer passes an empty list for a repeatable option that was not given.
    flags = {key: value for key, value in locals().items() if key in KEYS and value != []}
    with errors_in_one_line():
        if not __debug__:
            raise ConfigError("assertions are part of the broker's safety, it does not run under python -O")
        settings = load_settings(flags, os.environ, config)
        for name, address in (("listen", settings.listen_address), ("grpc", settings.grpc_address)):
            if address is not None and not address.is_loopback:
                raise ConfigError(
                    f"{name}: {address} can be reached from other machines, and this version has neither "
                    "authentication nor TLS to protect it there; listen on 127.0.0.1 and put a proxy in front that has "
                    "both"
                )
        from penstock.server import lifecycle
        from penstock.server.logging import configure_logging

        configure_logging(settings.log_format, settings.log_level)
        code = lifecycle.run(settings)
    raise typer.Exit(code)


def doctor(
    data_dir: Annotated[str | None, _flag("data_dir", "-d", metavar="DIR")] = None,
    listen: Annotated[str | None, _flag("listen", metavar="HOST:PORT")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with settings; flags override it.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Check this machine: Python, ports, disk, clock; and for the pipeline Java and Spark.

    Prints a hint for each failed check. Exits with 1 if a broker could not run here.
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

"""`penstock serve` and `penstock doctor`: run a broker on this machine, or check its requirements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.server.config import KEYS, ConfigError, load_settings
from penstock.server.terminal import EXIT_REFUSED, Output, OutputOption, show

_GRPC_TLS_1_3 = ("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305")
"""gRPC for Python has no minimum version. A TLS 1.2 handshake needs one of the ciphers that this variable names when
gRPC is loaded: this one needs a shared key, which no client has, so TLS 1.3 remains, whose ciphers are fixed."""


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
    shards: Annotated[int | None, _flag("shards", metavar="N")] = None,
    processes: Annotated[int | None, _flag("processes", metavar="N")] = None,
    lake: Annotated[str | None, _flag("lake", metavar="DIR")] = None,
    auto_create: Annotated[bool | None, _flag("auto_create")] = None,
    dialect: Annotated[list[str] | None, _flag("dialect")] = None,
    webhook_allow: Annotated[str | None, _flag("webhook_allow", metavar="NETWORKS")] = None,
    log_format: Annotated[str | None, _flag("log_format")] = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    environment: Annotated[str | None, _flag("environment", metavar="NAME")] = None,
    environment_color: Annotated[str | None, _flag("environment_color")] = None,
    mask: Annotated[list[str] | None, _flag("mask", metavar="FIELD")] = None,
    trace: Annotated[str | None, _flag("trace", metavar="URL")] = None,
    trace_sample: Annotated[float | None, _flag("trace_sample", metavar="SHARE")] = None,
    allowed_host: Annotated[list[str] | None, _flag("allowed_host", metavar="NAME")] = None,
    allowed_origin: Annotated[list[str] | None, _flag("allowed_origin", metavar="ORIGIN")] = None,
    auth: Annotated[str | None, _flag("auth")] = None,
    jwt_issuer: Annotated[str | None, _flag("jwt_issuer", metavar="URL")] = None,
    jwt_audience: Annotated[str | None, _flag("jwt_audience", metavar="NAME")] = None,
    jwks: Annotated[str | None, _flag("jwks", metavar="FILE|URL")] = None,
    tls_cert: Annotated[str | None, _flag("tls_cert", metavar="FILE")] = None,
    tls_key: Annotated[str | None, _flag("tls_key", metavar="FILE")] = None,
    tls_client_ca: Annotated[str | None, _flag("tls_client_ca", metavar="FILE")] = None,
    tls_client_crl: Annotated[str | None, _flag("tls_client_crl", metavar="FILE")] = None,
    limit_address_requests: Annotated[str | None, _flag("limit_address_requests", metavar="RATE")] = None,
    limit_address_failures: Annotated[int | None, _flag("limit_address_failures", metavar="NUMBER")] = None,
    limit_key_requests: Annotated[str | None, _flag("limit_key_requests", metavar="RATE")] = None,
    limit_key_messages: Annotated[str | None, _flag("limit_key_messages", metavar="RATE")] = None,
    limit_key_bytes: Annotated[str | None, _flag("limit_key_bytes", metavar="RATE")] = None,
    limit_key_streams: Annotated[int | None, _flag("limit_key_streams", metavar="NUMBER")] = None,
    limit_key_in_flight: Annotated[int | None, _flag("limit_key_in_flight", metavar="NUMBER")] = None,
    limit_namespace_requests: Annotated[str | None, _flag("limit_namespace_requests", metavar="RATE")] = None,
    limit_namespace_messages: Annotated[str | None, _flag("limit_namespace_messages", metavar="RATE")] = None,
    limit_namespace_bytes: Annotated[str | None, _flag("limit_namespace_bytes", metavar="RATE")] = None,
    limit_queue_streams: Annotated[int | None, _flag("limit_queue_streams", metavar="NUMBER")] = None,
    limit_queue_in_flight: Annotated[int | None, _flag("limit_queue_in_flight", metavar="NUMBER")] = None,
    trusted_proxy: Annotated[list[str] | None, _flag("trusted_proxy", metavar="NETWORK")] = None,
    log_mask: Annotated[list[str] | None, _flag("log_mask", metavar="PATH")] = None,
    insecure_plaintext_listen: Annotated[bool | None, _flag("insecure_plaintext_listen")] = None,
    encryption_key: Annotated[str | None, _flag("encryption_key", metavar="FILE")] = None,
    encrypt_all: Annotated[bool | None, _flag("encrypt_all")] = None,
    shutdown_grace_s: Annotated[int | None, _flag("shutdown_grace_s", metavar="SECONDS")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with settings; flags override it.")
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, which drains and stops it.

    Prints one line, [bold]ready http=… grpc=…[/bold], when it accepts requests. Every option is also a key of the
    settings file and an environment variable such as PENSTOCK_DATA_DIR.

    Example: penstock serve --data-dir /var/lib/penstock --listen 127.0.0.1:7400
    """
    # Typer passes an empty list for a repeatable option that was not given.
    flags = {key: value for key, value in locals().items() if key in KEYS and value != []}
    if not __debug__:
        raise ConfigError("assertions are part of the broker's safety, it does not run under python -O")
    settings = load_settings(flags, os.environ, config)
    if settings.tls_cert:
        os.environ.setdefault(*_GRPC_TLS_1_3)
    from penstock.server.lifecycle import run
    from penstock.server.logging import configure_logging
    from penstock.server.processes import run_processes

    configure_logging(settings.log_format, settings.log_level, settings.log_mask)
    raise typer.Exit(run(settings) if settings.processes == 1 else run_processes(settings))


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

    Example: penstock doctor --data-dir /var/lib/penstock
    """
    from penstock.server.doctor import examine

    settings = load_settings({"data_dir": data_dir, "listen": listen}, os.environ, config)
    findings = list(examine(settings))
    if output is Output.json:
        show({"findings": [finding._asdict() for finding in findings]}, output)
    for finding in findings if output is Output.table else ():
        hint = f"  ({finding.hint})" if finding.hint else ""
        typer.echo(f"{finding.verdict:8} {finding.name:10} {finding.found}{hint}")
    raise typer.Exit(EXIT_REFUSED if any(finding.verdict == "failed" for finding in findings) else 0)

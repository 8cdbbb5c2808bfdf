"""Logging to standard error: one JSON object per line, or coloured text for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal

import structlog
from structlog.typing import Processor

from penstock.server.log_mask import CREDENTIAL_FIELDS, FieldMask

# Control characters and line separators, which a terminal or a line-based collector would interpret.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {0x2028: "\\u2028", 0x2029: "\\u2029", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}

# Tracebacks omit local variables, which may hold payloads or keys.
_without_locals = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logging(style: Literal["auto", "json", "console"], level: str, masked: Sequence[str] = ()) -> None:
    """Send the events of penstock and of libraries to standard error. Called once, before the first event.

    `auto` is console if standard error is a terminal, and json otherwise. `masked` are paths of fields that are not
    shown, besides those of credentials.
    """
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    mask = FieldMask((*CREDENTIAL_FIELDS, *masked))
    last: list[Processor] = (
        [mask, _without_locals, structlog.processors.JSONRenderer(default=str)]
        if style == "json"
        else [
            mask,
            _escape_controls,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Uvicorn logs each malformed request as a warning; any client could fill the log with them.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def _escape_controls(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {key: value.translate(_ESCAPES) if isinstance(value, str) else value for key, value in event.items()}

"""Log lines have no secrets and no payloads."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import structlog
from penstock.server.logging import configure_logging

def fails(payload):
    key = "whsec_canary"
    raise RuntimeError("it broke")

configure_logging({style!r}, "info")
try:
    fails(b"payload_canary")
except RuntimeError:
    structlog.get_logger("penstock.test").exception("failed")
"""


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_variables(style):
    program = PROGRAM.format(style=style)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "it broke" in done.stderr and "fails" in done.stderr
    assert "payload_canary" not in done.stderr
    assert "whsec_canary" not in done.stderr

"""The AsyncAPI document is complete and matches the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.transports.http.asyncapi import document
from penstock.wire import stream

DOCS = (Path(__file__).resolve().parents[4] / "docs/websocket.md").read_text()


def test_every_reference_resolves():
    parsed = json.loads(document())
    references = re.findall(r'"\$ref": "(#[^"]+)"', json.dumps(parsed))
    assert len(references) > 40
    for reference in references:
        place = parsed
        for name in reference[2:].split("/"):
            place = place[name]


def test_every_frame_is_described_and_documented():
    messages = json.loads(document())["components"]["messages"]
    names = {message["name"] for message in messages.values()}
    assert {"subscribe", "publish", "call", "messages", "results", "error", "bye"} <= names
    assert not [name for name in names if f"`{name}`" not in DOCS]


def test_every_close_code_is_documented():
    table = DOCS.partition("## Close codes")[2]
    assert not [close.code for close in stream.CLOSES if str(close.code) not in table]

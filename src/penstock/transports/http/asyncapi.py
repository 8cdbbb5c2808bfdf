"""`/asyncapi.json`: the frames of `/v1/ws` in AsyncAPI 3.0, generated from the structs of `wire`.

It describes the JSON form; docs/websocket.md has the differences of MessagePack.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec

from penstock._version import __version__
from penstock.wire import stream
from penstock.wire.messages import PublishRequest

_REFERENCE = "#/components/schemas/{name}"
_CHANNEL = "#/channels/ws"


@cache
def document() -> bytes:
    server, client = stream.SERVER_FRAMES, get_args(stream.JSON_FRAMES)
    shapes: list[Any] = [*client, *server, PublishRequest]
    references, schemas = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    # The content of a `publish` frame is parsed like the body of `POST /v1/publish` and has the same shape.
    schemas["PublishFrame"]["properties"]["messages"] = schemas["PublishRequest"]["properties"]["messages"]
    messages = {
        shape.__name__: {
            "name": _tag(shape),
            "contentType": "application/json",
            "payload": reference,
            **({"summary": shape.__doc__} if _has_docstring(shape) else {}),
        }
        for shape, reference in zip(shapes[:-1], references, strict=False)
    }
    return msgspec.json.encode(
        {
            "asyncapi": "3.0.0",
            "info": {
                "title": "Penstock",
                "version": __version__,
                "description": "Frames of the WebSocket. Every frame that a client sends has exactly one answer, which "
                "repeats its `id`. Closes: " + "; ".join(f"{each.code}: {each.meaning}" for each in stream.CLOSES),
            },
            "servers": {"local": {"host": "127.0.0.1:7400", "protocol": "ws"}},
            "channels": {
                "ws": {
                    "address": "/v1/ws",
                    "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                }
            },
            "operations": {
                "receive": _operation("Frames of clients.", "receive", client),
                "send": _operation("Frames of the broker.", "send", server),
            },
            "components": {"messages": messages, "schemas": schemas},
        }
    )


def _operation(summary: str, action: str, shapes: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "summary": summary,
        "action": action,
        "channel": {"$ref": _CHANNEL},
        "messages": [{"$ref": f"{_CHANNEL}/messages/{shape.__name__}"} for shape in shapes],
    }


def _tag(shape: Any) -> str:
    return str(shape.__struct_config__.tag)


def _has_docstring(shape: Any) -> bool:
    """The docstring of the class itself, not the generated one of a dataclass-like class."""
    return bool(shape.__doc__) and not shape.__doc__.startswith(shape.__name__ + "(")

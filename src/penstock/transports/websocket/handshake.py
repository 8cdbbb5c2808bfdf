"""The WebSocket handshake.

CORS does not apply to WebSockets: a foreign page can open one to 127.0.0.1 from a browser on this machine and read the
replies. So the handshake checks Host and Origin as for any other request (`access.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, InvalidHeader
from websockets.http11 import Request as HandshakeRequest
from websockets.http11 import Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.errors import InvalidRequest, UpgradeRequired
from penstock.transports.access import Access
from penstock.transports.http.request import Request
from penstock.transports.websocket.codec import Codec
from penstock.transports.websocket.json_codec import JsonCodec
from penstock.transports.websocket.msgpack_codec import MsgpackCodec
from penstock.wire import stream

PATH = "/v1/ws"
CODECS: dict[str, Codec] = {codec.protocol: codec for codec in (JsonCodec(), MsgpackCodec())}


def check_handshake(request: Request, access: Access) -> tuple[Codec, bytes]:
    """The negotiated codec and the reply that opens the connection. Raises PenstockError."""
    access.check(request.fields)
    server = ServerProtocol(subprotocols=[cast(Subprotocol, name) for name in CODECS], select_subprotocol=_select)
    protocol, answer = _accepted(server, request)
    return CODECS[protocol or stream.JSON_PROTOCOL], answer


def check_plain_handshake(request: Request, access: Access) -> bytes:
    """The reply that opens a connection without a subprotocol. Raises PenstockError."""
    access.check(request.fields)
    return _accepted(ServerProtocol(), request)[1]


def _accepted(server: ServerProtocol, request: Request) -> tuple[str | None, bytes]:
    given = Headers()
    for name, value in request.fields.headers:
        given[name.decode("latin-1")] = value.decode("latin-1")
    try:
        accept, _, protocol = server.process_request(HandshakeRequest(request.path, given))
    except InvalidHandshake as error:
        if isinstance(error, InvalidHeader) and error.name == "Sec-WebSocket-Version" and error.value is not None:
            raise UpgradeRequired(f"WebSocket version {error.value[:20]} is not supported; use 13") from None
        raise InvalidRequest(f"not a WebSocket handshake: {error}") from None
    answer = Headers({"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept})
    if protocol is not None:
        answer["Sec-WebSocket-Protocol"] = protocol
    return protocol, Response(101, "Switching Protocols", answer).serialize()


def _select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """The first supported subprotocol of the client. Without an offer the connection uses JSON and names none."""
    known = [name for name in offered if name in CODECS]
    if offered and not known:
        raise InvalidHandshake(f"offer one of the subprotocols {', '.join(CODECS)}, or none")
    return known[0] if known else None

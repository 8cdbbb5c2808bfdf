"""Requests without a socket, for a program with the broker in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.errors import InvalidRequest, Unavailable
from penstock.transports.http.answer import Answer, error_answer
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import UNKNOWN_PEER, Peer, Request

if TYPE_CHECKING:
    from penstock.transports.http.app import HttpApp

_HOST = ((b"host", b"localhost"),)


class InProcessHttp:
    """Calls the handlers of an application. An error is an answer, as over a socket."""

    def __init__(self, app: HttpApp):
        self._app = app

    async def ask(
        self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...], body: bytes,
        peer: Peer = UNKNOWN_PEER, on_behalf_of: Request | None = None,
    ) -> Answer:  # fmt: skip
        """Await the answer to a request. A cancellation withdraws it, as a closed connection would.

        A request that is made for another one has the identity of that one.
        """
        path, _, query = target.partition("?")
        fields = Fields(_HOST + headers)
        request = Request(method, unquote(path) if "%" in path else path, query.encode(), fields, body)
        request.peer = peer
        if on_behalf_of is not None:
            request.peer, request.principal = on_behalf_of.peer, on_behalf_of.principal
            request.by_cookie, request.made_for = on_behalf_of.by_cookie, on_behalf_of
        answer = await self._app.ask(request)
        if answer is None:
            raise Unavailable("the broker gave no answer")
        if answer.stream is not None:
            return error_answer(InvalidRequest("a stream of events needs a connection of its own: use http://"))
        return answer

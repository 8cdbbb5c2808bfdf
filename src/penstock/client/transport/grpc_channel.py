"""grpc:// and grpcs://: one channel. The method `Call` carries requests of the HTTP interface as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from penstock import limits
from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import Transport, client_is_closed
from penstock.client.transport.endpoint import ServerEndpoint, client_certificate, unusable_certificate
from penstock.client.transport.http1 import RESPONSE_BYTES_MAX
from penstock.errors import PenstockError
from penstock.v1 import broker_pb2 as pb
from penstock.wire.status import STATUS, error_from_code

METHOD = "/penstock.v1.Broker/Call"
_OPTIONS = [
    ("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.REQUEST_BYTES_MAX + limits.MIB),
    ("grpc.enable_retries", 0),  # the carrier repeats calls
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
_CODE_BY_STATUS = {status.grpc: code for code, status in reversed(STATUS.items())}


class GrpcTransport(Transport):
    """Connects with the first call, in the event loop that makes it."""

    def __init__(self, endpoint: ServerEndpoint):
        self._endpoint = endpoint
        authorization = endpoint.authorization
        self._metadata = (("authorization", authorization),) if authorization is not None else ()
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        method = (await self._connected()).unary_unary(
            METHOD, request_serializer=pb.CallRequest.SerializeToString, response_deserializer=pb.CallReply.FromString
        )
        request = pb.CallRequest(
            method=call.method, target=call.target, content_type=call.content_type, accept=call.accept, body=call.body
        )
        try:
            reply = await method(request, timeout=self._endpoint.timeout_of(call), metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None
        except grpc.aio.UsageError as error:  # the channel was closed under it
            raise client_is_closed() from error
        self.reached = True
        headers = {b"retry-after": b"%d" % reply.retry_after_s} if reply.HasField("retry_after_s") else {}
        return Response(reply.status, headers, reply.body)

    async def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            await self._channel.close(0)

    async def _connected(self) -> grpc.aio.Channel:
        if self._closed:
            raise client_is_closed()
        if self._channel is None:
            target = f"{self._endpoint.bracketed_host}:{self._endpoint.port}"
            if self._endpoint.is_tls:
                self._channel = grpc.aio.secure_channel(target, _credentials(), _OPTIONS)
            else:
                self._channel = grpc.aio.insecure_channel(target, _OPTIONS)
        if not self.reached:
            try:
                async with asyncio.timeout(self._endpoint.connect_timeout_s):
                    await self._ready(self._channel)
            except TimeoutError as error:
                raise self._endpoint.not_connected(error) from None
        return self._channel

    async def _ready(self, channel: grpc.aio.Channel) -> None:
        """Wait for the connection; a refused one raises at once, as with HTTP."""
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise self._endpoint.not_connected(ConnectionRefusedError())
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    def _error(self, error: grpc.aio.AioRpcError) -> PenstockError:
        """The failure of the call on its way. A refusal of the server is a reply."""
        status, text = error.code(), error.details() or ""
        if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            return self._endpoint.not_answered(text)
        if status is grpc.StatusCode.UNIMPLEMENTED:
            return self._endpoint.not_penstock(text)
        return error_from_code(_CODE_BY_STATUS.get(status.name, ""), text)


def _credentials() -> grpc.ChannelCredentials:
    """The roots of the system, and the client certificate if there is one."""
    files = client_certificate()
    if files is None:
        return grpc.ssl_channel_credentials()
    cert, key = files
    try:
        return grpc.ssl_channel_credentials(None, Path(key or cert).read_bytes(), Path(cert).read_bytes())
    except OSError as error:
        raise unusable_certificate(error) from None

"""The number of connections of a gRPC server, from channelz."""

from __future__ import annotations

from typing import Any

from grpc_channelz.v1 import channelz_pb2
from grpc_channelz.v1.channelz import ChannelzServicer


class ConnectionCounter:
    """Counts connections of the server that was created last; it has the highest channelz id."""

    def __init__(self) -> None:
        self._server = 0
        start, more = 0, True
        while more:
            listed: Any = ChannelzServicer.GetServers(channelz_pb2.GetServersRequest(start_server_id=start), None)
            for server in listed.server:
                self._server = max(self._server, server.ref.server_id)
            start, more = self._server + 1, not listed.end

    def count(self) -> int:
        found, start, more = 0, 0, True
        while more:
            asked = channelz_pb2.GetServerSocketsRequest(server_id=self._server, start_socket_id=start)
            listed: Any = ChannelzServicer.GetServerSockets(asked, None)
            found += len(listed.socket_ref)
            start = listed.socket_ref[-1].socket_id + 1 if listed.socket_ref else 0
            more = not listed.end and bool(listed.socket_ref)
        return found

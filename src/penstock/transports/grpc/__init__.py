"""The gRPC service of `penstock/v1/broker.proto`. `server.py` is the server, `methods.py` maps methods to functions."""

from penstock.transports.grpc.server import GrpcServer

__all__ = ["GrpcServer"]

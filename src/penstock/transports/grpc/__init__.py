"""gRPC: `server.py` is the door, `methods.py` the map. The contract is `penstock/v1/broker.proto`."""

from penstock.transports.grpc.server import GrpcServer

__all__ = ["GrpcServer"]

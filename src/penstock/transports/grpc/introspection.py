"""The gRPC services for health and reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION_V1ALPHA = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name
REFLECTION_V1 = REFLECTION_V1ALPHA.replace(".v1alpha.", ".v1.")


class Health(health_aio.HealthServicer):  # type: ignore[misc] # the library has no types
    """The servicer of the library, with the method `List`, which the library does not implement."""

    def __init__(self, services: Sequence[str]):
        super().__init__()
        self._services = ("", *services)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        listed = health_pb2.HealthListResponse()
        for service in self._services:
            asked = health_pb2.HealthCheckRequest(service=service)
            listed.statuses[service].CopyFrom(await self.Check(asked, context))
        return listed


async def add_health(service: str, server: grpc.aio.Server) -> Health:
    health = Health([service])
    await health.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    return health


def add_reflection(service: str, server: grpc.aio.Server) -> None:
    """Add reflection as v1, which clients try first, and as v1alpha. Their messages are the same."""
    _describe_v1()
    servicer = reflection_aio.ReflectionServicer((service, HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (REFLECTION_V1, REFLECTION_V1ALPHA):
        handlers = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))


def _describe_v1() -> None:
    """Add the descriptor of v1 to the pool. The library contains only that of v1alpha."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(REFLECTION_V1)
    except KeyError:
        alpha = descriptor_pb2.FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
        text = text_format.MessageToString(alpha).replace("v1alpha", "v1")
        pool.AddSerializedFile(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()).SerializeToString())

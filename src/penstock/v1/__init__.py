"""The gRPC contract, `broker.proto`, and what protoc makes of it (`make proto`). Needs the extra `grpc`."""

try:
    import google.protobuf  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('penstock.v1 needs gRPC: pip install "penstock[grpc]"', name=missing.name) from None

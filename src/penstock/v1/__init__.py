"""The gRPC contract, `broker.proto`, and what protoc makes of it (`make proto`). Needs the extra `grpc`."""

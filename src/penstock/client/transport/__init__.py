"""The ways to a server: one transport per URL scheme, and the carrier that repeats what failed.

endpoint      the server's address, credential and timeouts
base          the interface of a transport, and the choice by URL
asyncio_pool  http and https; `http1` reads responses
websocket     ws and wss
grpc_channel  grpc and grpcs
direct        a broker in this process, and an event loop in another thread
carrier       from a call to its result; `retry` decides about repetitions
"""

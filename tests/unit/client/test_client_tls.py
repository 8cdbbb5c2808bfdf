"""https: both shells check the server's certificate, and speak TLS when it holds."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from client_fake import FakeBroker, HttpServer

import penstock.sync
from penstock.client import Client
from penstock.errors import PenstockError

# Self-signed, for 127.0.0.1, made for this test and used nowhere else.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmDCCAT6gAwIBAgIUQi+e6Ib5mv2q0mHGhEnkzO6StcwwCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcGVuc3RvY2sgdGVzdDAgFw0yNjExMTUyMDQwMzNaGA8yMTI2
MTAyMjIwNDAzM1owGDEWMBQGA1UEAwwNcGVuc3RvY2sgdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABPRmmixB5yZ+d9RyWJyQ1PAYc5BhqtqGX/yC5q1GI0vm
9ieiEmGL0Ynu6wYyrC+9YUEnaattlyUILF/+jEir3+WjZDBiMB0GA1UdDgQWBBQw
OvfgVEBaPazEyb5Lq2iUYx/UajAfBgNVHSMEGDAWgBQwOvfgVEBaPazEyb5Lq2iU
Yx/UajAPBgNVHRMBAf8EBTADAQH/MA8GA1UdEQQIMAaHBH8AAAEwCgYIKoZIzj0E
AwIDSAAwRQIhAM1LDthUOWdCqLarXRVRnZBRlY9CrlRHGe5W4cAu36N1AiBI037v
iTmjf5bAFFfiOe33UEk8qPkei/e+Ga4Fh337Xg==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDZMMNjPiFb6tHU6A
n1hAAdCzA93Srygzm8/S0nCcdfqhRANCAAT0ZposQecmfnfUclickNTwGHOQYara
hl/8guatRiNL5vYnohJhi9GJ7usGMqwvvWFBJ2mrbZclCCxf/oxIq9/l
-----END PRIVATE KEY-----
"""


@pytest.fixture
def contexts(tmp_path):
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return server, ssl.create_default_context(cadata=CERTIFICATE)


def serve(contexts, test) -> None:
    async def main() -> None:
        broker = FakeBroker()
        async with HttpServer(broker, contexts[0]) as server:
            await asyncio.wait_for(test(broker, server), 20)

    asyncio.run(main())


def test_a_trusted_server_is_spoken_to(contexts):
    async def test(broker, server):
        async with Client(server.url, ssl=contexts[1]) as client:
            await client.queue("orders").publish_many([b"x" * 300_000] * 3)
            async for batch in client.queue("orders").consume_batches(wait=0.02):
                assert [len(payload) for payload in batch.payloads()] == [300_000] * 3
                await batch.ack()

        def blocking() -> None:
            with penstock.sync.Client(server.url, ssl=contexts[1]) as client:
                client.queue("orders").publish(b"y" * 300_000)
                client.queue("orders").publish(1)

        await asyncio.to_thread(blocking)
        assert broker.state == ["acked"] * 3 + ["ready"] * 2

    serve(contexts, test)


def test_a_server_that_nobody_vouches_for_is_not(contexts):
    async def test(broker, server):
        async with Client(server.url) as client:
            with pytest.raises(PenstockError, match="cannot trust https://"):
                await client.queue("orders").publish(1)

        def blocking() -> None:
            with (
                penstock.sync.Client(server.url) as client,
                pytest.raises(PenstockError, match="cannot trust https://"),
            ):
                client.queue("orders").publish(1)

        await asyncio.to_thread(blocking)
        assert not server.requests

    serve(contexts, test)

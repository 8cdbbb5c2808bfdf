"""Client-side encryption and signatures, against a broker in this process that sees none of it."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import penstock
from penstock import limits
from penstock.batch import Batch
from penstock.client.publish.frames import frames
from penstock.errors import InvalidRequest
from penstock.protection import ENCRYPTION_HEADER, SIGNATURE_HEADER, NotAuthentic, Protection

BILLING, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
SECRET = os.urandom(32)
SEALING: dict[str, Any] = {"encrypt_with": ("k1", SECRET), "sign_with": ("billing", BILLING)}
OPENING: dict[str, Any] = {"decrypt_with": {"k1": SECRET}, "verify_with": {"billing": BILLING.public_key()}}
BOTH = Protection(**SEALING, **OPENING)


def with_broker(test):
    """Run `test(client)` with a client of a broker of its own."""

    async def run(data_dir: str) -> None:
        async with penstock.open(data_dir, fsync="never") as client:
            await test(client)

    with TemporaryDirectory() as data_dir:
        asyncio.run(run(data_dir))


def protect(client, protection: Protection | None) -> None:
    client._carrier.protection = protection


async def everything(queue, **options: Any) -> list[Any]:
    found = []
    async for message in queue.consume(wait=0.5, **options):
        async with message:
            found.append((message.value, message.key, message.headers))
    return found


def test_messages_come_back_and_the_broker_sees_ciphertext():
    async def test(client) -> None:
        orders = client.queue("orders")
        protect(client, BOTH)
        await orders.publish({"card": "4111"}, key="user-1", headers={"h": "v"})
        await orders.publish_many([{"n": 1}, b"raw", "text"], keys=["a", None, "b"])
        protect(client, None)
        stored = await orders.peek(max=10)
        assert len(stored) == 4
        for message in stored:
            assert b"4111" not in message.payload and b"raw" not in message.payload and not message.is_json
            assert {ENCRYPTION_HEADER, SIGNATURE_HEADER} <= message.headers.keys()
        protect(client, BOTH)
        assert [message.value for message in await orders.peek(max=10)] == [{"card": "4111"}, {"n": 1}, b"raw", "text"]
        assert [message.value for message in await orders.read()] == [{"card": "4111"}, {"n": 1}, b"raw", "text"]
        assert await everything(orders) == [
            ({"card": "4111"}, "user-1", {"h": "v"}), ({"n": 1}, "a", {}), (b"raw", None, {}), ("text", "b", {}),
        ]  # fmt: skip

    with_broker(test)


@pytest.mark.parametrize("sealing", [{"encrypt_with": ("k1", SECRET)}, {"sign_with": ("billing", BILLING)}])
def test_encryption_and_signatures_work_alone(sealing):
    opening = {"decrypt_with": {"k1": SECRET}} if "encrypt_with" in sealing else {"verify_with": OPENING["verify_with"]}

    async def test(client) -> None:
        protect(client, Protection(**sealing, **opening))
        await client.queue("orders").publish_many([{"n": 1}, b"raw"])
        assert await everything(client.queue("orders")) == [({"n": 1}, None, {}), (b"raw", None, {})]

    with_broker(test)


FORGED: dict[str, Protection | None] = {
    "it is not signed": Protection(encrypt_with=("k1", SECRET)),
    "which the key set does not have": Protection(encrypt_with=("k1", SECRET), sign_with=("mallory", OTHER)),
    "its signature does not match": Protection(encrypt_with=("k1", SECRET), sign_with=("billing", OTHER)),
    "it is not encrypted": Protection(sign_with=("billing", BILLING)),
    "it is encrypted with key 'k2'": Protection(encrypt_with=("k2", SECRET), sign_with=("billing", BILLING)),
    "it cannot be decrypted": Protection(encrypt_with=("k1", os.urandom(32)), sign_with=("billing", BILLING)),
}


@pytest.mark.parametrize("reason", FORGED)
@pytest.mark.parametrize("way", ["messages", "batches", "read"])
def test_a_forged_message_is_not_handed_out_and_is_rejected_with_the_reason(reason, way):
    async def test(client) -> None:
        orders = client.queue("orders")
        protect(client, BOTH)
        await orders.publish("first")
        protect(client, FORGED[reason])
        await orders.publish("forged")
        protect(client, BOTH)
        await orders.publish("last")
        if way == "read":
            assert [message.value for message in await orders.read()] == ["first", "last"]
            assert [message.offset for message in await orders.read()] == [0, 2]
            return
        if way == "messages":
            seen = [value for value, *_ in await everything(orders)]
        else:
            seen = []
            async for batch in orders.consume_batches(wait=0.2):
                seen += batch.values()
                await batch.ack()
        assert seen == ["first", "last"]
        (letter,) = (await orders.dead_letters()).messages
        assert reason in letter.error and letter.reason == "rejected"
        assert (await orders.stats()).depth == 0

    with_broker(test)


def test_a_forged_message_can_be_raised_instead():
    async def test(client) -> None:
        orders = client.queue("orders")
        await client.create_queue("orders", max_retries=0)
        await orders.publish("forged")
        protect(client, Protection(**OPENING, on_invalid="raise"))
        with pytest.raises(NotAuthentic, match="it is not signed"):
            await orders.read()
        with pytest.raises(NotAuthentic, match="it is not signed"):
            await everything(orders)

    with_broker(test)


def test_messages_of_another_queue_are_refused_unless_it_is_named():
    async def test(client) -> None:
        orders, copies = client.queue("orders"), client.queue("copies")
        protect(client, BOTH)
        await orders.publish("moved", key="k")
        protect(client, None)
        (stored,) = await orders.peek()
        await copies.publish(stored.payload, headers={**stored.headers, "added": "later"}, key="k")
        protect(client, BOTH)
        assert await copies.read() == [] or list(await copies.read()) == []
        protect(client, Protection(**OPENING, queues=["orders"]))
        (message,) = await copies.read()
        assert (message.value, message.headers) == ("moved", {})  # a header that is not signed is removed

    with_broker(test)


@pytest.mark.parametrize("changed", ["payload", "key", "headers"])
def test_any_change_on_the_way_is_noticed(changed):
    async def test(client) -> None:
        orders = client.queue("orders")
        protect(client, Protection(sign_with=("billing", BILLING)))
        await orders.publish({"amount": 1}, key="user-1", headers={"currency": "EUR"})
        protect(client, None)
        (stored,) = await orders.peek()
        value = {"amount": 1000} if changed == "payload" else stored.value
        headers = {**stored.headers, **({"currency": "USD"} if changed == "headers" else {})}
        await orders.publish(value, key="user-2" if changed == "key" else "user-1", headers=headers)
        protect(client, Protection(verify_with=OPENING["verify_with"]))
        assert [message.value for message in await orders.read()] == [{"amount": 1}]

    with_broker(test)


def test_transactions_are_protected():
    async def test(client) -> None:
        protect(client, BOTH)
        await client.queue("in").publish({"n": 1})
        async for message in client.queue("in").consume(wait=0.2):
            async with message.transaction() as transaction:
                transaction.publish("out", {"n": 2}, key="k", headers={"h": "v"})
                transaction.publish("out", b"raw")
        assert await everything(client.queue("out")) == [({"n": 2}, "k", {"h": "v"}), (b"raw", None, {})]

    with_broker(test)


def test_redriven_dead_letters_are_verified_again_and_letters_can_be_opened():
    async def test(client) -> None:
        orders = client.queue("orders")
        protect(client, BOTH)
        await orders.publish({"n": 1}, key="k")
        async for message in orders.consume(wait=0.2):
            await message.reject("bad")
        (letter,) = (await orders.dead_letters()).messages
        found = msgspec.to_builtins(letter)

        opened = BOTH.open(b64decode(found["payload_b64"]), found["headers"], queue="orders", key=found["key"])
        assert msgspec.json.decode(opened) == {"n": 1}
        await orders.redrive(filter="", dry_run=False)
        assert [value for value, *_ in await everything(orders)] == [{"n": 1}]

    with_broker(test)


def test_workers_get_verified_messages_only():
    async def test(client) -> None:
        seen: list[Any] = []
        protect(client, BOTH)
        await client.queue("orders").publish("good")
        protect(client, None)
        await client.queue("orders").publish("forged")
        protect(client, BOTH)

        @client.worker("orders")
        async def handle(message: penstock.Message) -> None:
            seen.append(message.value)

        await client.run_workers(wait=0.3, signals=False)
        assert seen == ["good"]

    with_broker(test)


def test_the_blocking_client_has_the_same_protection(tmp_path):
    from penstock.sync import open as open_blocking

    with open_blocking(str(tmp_path), fsync="never") as client:
        client._carrier.protection = BOTH
        orders = client.queue("orders")
        orders.publish({"n": 1}, key="k")
        orders.publish_many([b"raw", "text"])
        client._carrier.protection = None
        orders.publish("forged")
        client._carrier.protection = BOTH
        seen = []
        for message in orders.consume(wait=0.2):
            with message:
                seen.append(message.value)
        assert seen == [{"n": 1}, b"raw", "text"]
        (letter,) = orders.dead_letters().messages
        assert "it is not signed" in letter.error


def test_large_frames_are_split():
    values = [bytes(800)] * 9_000
    (frame,) = frames(values)
    protected = list(BOTH.protect_frames([frame], "default/default/orders"))
    assert len(protected) == 2 and sum(each.rows for each in protected) == 9_000
    assert all(len(each.data) <= limits.BATCH_BYTES_MAX for each in protected)
    assert all(Batch.open(each.data).count == each.rows for each in protected)


def test_wrong_keys_and_reserved_headers_are_refused():
    with pytest.raises(InvalidRequest, match="32 bytes"):
        Protection(encrypt_with=("k", b"short"))
    with pytest.raises(InvalidRequest, match="on_invalid"):
        Protection(on_invalid="ignore")  # type: ignore[arg-type]

    async def test(client) -> None:
        protect(client, BOTH)
        with pytest.raises(InvalidRequest, match="set by the client"):
            await client.queue("orders").publish(1, headers={SIGNATURE_HEADER: "{}"})

    with_broker(test)


@pytest.mark.parametrize("value", ["", "{}", "null", "[1]", '{"alg":"none"}', "\ud7ff", "{" * 1000])
def test_malformed_headers_are_refused(value):
    for header in (SIGNATURE_HEADER, ENCRYPTION_HEADER):
        opening = OPENING if header == SIGNATURE_HEADER else {"decrypt_with": {"k1": SECRET}}
        with pytest.raises(NotAuthentic):
            Protection(**opening).open(b"x", {header: value}, queue="orders")

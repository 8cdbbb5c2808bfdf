"""The SDK over gRPC: calls are carried as they are, and failures on the way are errors of the SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest
from grpc_served import run

from penstock import Client
from penstock.errors import Conflict, InvalidRequest, QueueNotFound, Unavailable


def test_calls_are_carried_with_their_errors_and_details():
    async def story(here):
        async with Client(f"grpc://{here.target}", retry_for=0) as client:
            orders = client.queue("orders")
            assert (await orders.publish({"n": 1})).offset == 0
            async for message in orders.consume(wait=5):
                assert message.value == {"n": 1}
                await message.ack()
                break
            with pytest.raises(Conflict) as refused:
                await orders.delete()
            assert refused.value.details["confirm"]
            with pytest.raises(QueueNotFound):
                await client.queue("other").stats()
            with pytest.raises(InvalidRequest, match="nonsense"):
                await orders.configure(nonsense=1)

    run(story)


def test_operation_without_a_method_of_its_own_is_carried():
    async def story(here):
        async with Client(f"grpc://{here.target}") as client:
            assert await client.ready()

    run(story)


def test_lost_server_is_unavailable():
    async def story(here):
        client = Client(f"grpc://{here.target}", retry_for=0)
        await client.queue("orders").publish(1)
        await here.server.stop(0)
        with pytest.raises(Unavailable):
            await client.queue("orders").publish(2)
        await client.aclose()

    run(story)


@pytest.mark.parametrize(("scheme", "module"), [("grpc", "grpc"), ("ws", "websockets")])
def test_missing_extra_of_a_scheme_names_the_package_to_install(scheme, module):
    program = f"""
import sys
sys.modules[{module!r}] = None
import penstock
try:
    penstock.Client("{scheme}://127.0.0.1:1")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert f"pip install 'penstock[{scheme}]'" in done.stdout

"""The public names, and the equality of both clients."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import penstock
import penstock.sync
from penstock import client, errors

ASYNC_NAMES = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def test_the_public_names_are_these():
    kinds = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.PenstockError)
    }
    assert penstock.open is not open and "open" in dir(penstock), "it is there, but no star import brings it along"
    assert set(penstock.__all__) == {*client.__all__, *kinds, "__version__"}
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    assert set(dir(penstock)) >= set(penstock.__all__)
    with pytest.raises(AttributeError):
        penstock.nonsense  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing():
    assert not loaded_by("import penstock") & {"asyncio", "msgspec", "penstock.client", "penstock.errors"}


def test_the_sdk_does_not_load_the_server():
    modules = loaded_by("from penstock import Client; import penstock.sync")
    assert not {name.split(".")[0] for name in modules} & {"uvicorn", "typer", "structlog", "google_crc32c"}
    assert {name.split(".")[1] for name in modules if name.startswith("penstock.")} <= {
        "_version", "batch", "choices", "client", "eager", "embedded", "errors", "ids", "limits", "placement", "sync",
        "wire",
    }  # fmt: skip


def public(kind: type) -> dict[str, object]:
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if (not name.startswith("_") or name in ASYNC_NAMES or name in ASYNC_NAMES.values()) and callable(member)
    }


@pytest.mark.parametrize(
    "name",
    ["Client", "Queue", "Consumer", "BatchConsumer", "Message", "MessageBatch", "Schedules", "Scope", "Webhooks"],
)
def test_the_two_shells_have_the_same_methods(name):
    ours = {ASYNC_NAMES.get(method, method): member for method, member in public(getattr(client, name)).items()}
    theirs = public(getattr(penstock.sync, name))
    if name == "MessageBatch":
        ours.pop("__iter__", None), theirs.pop("__iter__", None)
    assert set(ours) == set(theirs)
    for method in theirs:
        here, there = inspect.signature(ours[method]), inspect.signature(theirs[method])
        assert list(here.parameters) == list(there.parameters), method
        assert [p.default for p in here.parameters.values()] == [p.default for p in there.parameters.values()], method


def test_the_two_clients_take_the_same_arguments():
    ours = set(inspect.signature(client.Client).parameters)
    only_ours = {"connections", "linger", "buffer_messages", "buffer_bytes"}  # a blocking call is its own backpressure
    assert ours - set(inspect.signature(penstock.sync.Client).parameters) == only_ours

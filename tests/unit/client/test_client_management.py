"""Managing queues and groups with the SDK: both clients make the same calls and raise the same errors."""

from __future__ import annotations

import functools
from datetime import timedelta

import msgspec
import pytest
from both_clients import both_clients

from penstock import BackoffSettings, Conflict, InvalidRequest, QueueSettings, RetentionSettings
from penstock.client.admin.settings import settings_body
from penstock.core.config import QueueConfig


@both_clients
async def test_create_queue_changes_only_the_named_settings(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    await ask(log.publish("kept"))
    await ask(client.create_queue("log", lease_ms=5_000))
    config = (await ask(log.config())).config
    assert (config.lease_ms, config.retention.mode) == (5_000, "keep")


@both_clients
async def test_typed_settings_set_all_and_names_change_some(broker, client, ask):
    settings = QueueSettings(max_retries=7, backoff=BackoffSettings(kind="fixed", base_ms=5), ttl_ms=60_000)
    jobs = await ask(client.create_queue("jobs", settings, lease=timedelta(minutes=2)))
    shown = await ask(jobs.config())
    assert shown.config == msgspec.structs.replace(settings, lease_ms=120_000)
    assert (shown.queue, shown.depth) == ("default/default/jobs", 0)
    assert (await ask(jobs.configure(ttl=None, delay=1.5))).config.ttl_ms is None
    assert (await ask(jobs.configure(settings))).config == settings, "a whole object sets all"
    other = await ask(client.create_queue("copy", (await ask(jobs.config())).config))
    assert (await ask(other.config())).config == settings
    with pytest.raises(InvalidRequest, match="nonsense"):
        await ask(jobs.configure(nonsense=1))
    with pytest.raises(InvalidRequest, match="lease"):
        await ask(jobs.configure(lease="a minute"))


def test_durations_of_settings_are_written_in_milliseconds():
    keep = {"mode": "keep", "ms": timedelta(days=7)}
    assert settings_body(None, {"lease": 60, "window": timedelta(seconds=1), "ttl": None, "lease_ms": 5}) == {
        "lease_ms": 5, "window_ms": 1_000, "ttl_ms": None,
    }  # fmt: skip
    steps = {"kind": "steps", "steps": [1, timedelta(minutes=1)]}
    assert settings_body(None, {"backoff": steps, "retention": keep}) == {
        "backoff": {"kind": "steps", "steps_ms": [1_000, 60_000]},
        "retention": {"mode": "keep", "ms": 604_800_000},
    }  # fmt: skip
    assert settings_body(None, {"retention": RetentionSettings(mode="keep")})["retention"]["mode"] == "keep"


def test_typed_settings_are_those_of_the_broker():
    assert QueueSettings.__struct_fields__ == QueueConfig.__struct_fields__
    assert msgspec.json.encode(QueueSettings()) == msgspec.json.encode(QueueConfig())


@both_clients
async def test_replies_have_attributes(broker, client, ask):
    jobs = await ask(client.create_queue("jobs", max_retries=0))
    placed = await ask(jobs.publish({"n": 1}, key="k"))
    stats = await ask(jobs.stats())
    assert (stats.depth, stats.partitions[0].end_offset, stats.totals["published"]) == (1, 1, 1)
    assert [each.queue for each in (await ask(client.queues())).queues] == [jobs.path]
    assert (await ask(client.summary())).depth == 1
    (explained,) = (await ask(jobs.explain(placed.id))).messages
    assert (explained.state, explained.id) == ("ready", placed.id)
    assert (await ask(jobs.autoscale())).ready == 1
    assert [event.kind for event in (await ask(jobs.history(placed.id))).events] == ["published"]
    assert (await ask(jobs.cancel(ids=[placed.id]))).results[0].status == "cancelled"
    assert (await ask(jobs.dead_letters())).messages == []


@both_clients
async def test_destructive_change_needs_the_token(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    await ask(log.publish("kept"))
    for change in (functools.partial(client.create_queue, "log"), log.configure):
        with pytest.raises(Conflict) as refused:
            await ask(change(retention={"mode": "until_acked"}))
        assert refused.value.details["would_lose"]["messages_sooner"] == 1
        await ask(change(retention={"mode": "until_acked"}, confirm=refused.value.details["confirm"]))
        await ask(log.configure(retention={"mode": "keep"}))


@both_clients
async def test_groups_are_created_moved_and_deleted(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    for number in range(4):
        await ask(log.publish(number))
    assert (await ask(log.create_group("audit", start={0: 2}))).offsets == {"0": 2}
    dry = await ask(log.seek_group("audit", "latest", dry_run=True))
    assert (dry.dry_run, dry.skipped) == (True, 2)
    moved = await ask(log.seek_group("audit", {0: 1}))
    assert (moved.again, moved.partitions[0].to_offset) == (1, 1)
    (group,) = (await ask(log.groups())).groups
    assert (group.group, group.lag) == ("audit", 3)
    with pytest.raises(Conflict) as refused:
        await ask(log.delete_group("audit"))
    await ask(log.delete_group("audit", confirm=refused.value.details["confirm"]))
    assert (await ask(log.groups())).groups == []


@both_clients
async def test_worker_function_publishes_with_the_client_that_declared_it(broker, client, ask):
    @client.worker("emails")
    def send(to: str, subject: str = "") -> str:
        return f"{to}: {subject}"

    placed = await ask(send.options(delay=60).publish("ada", subject="hello"))
    assert placed.queue == "default/default/emails"
    assert (await ask(client.queue("emails").read())).values() == [{"to": "ada", "subject": "hello"}]
    assert send("bob") == "bob: ", "called like any function"

"""A check refuses exactly the commands that the decision would refuse, and changes nothing."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from penstock.batch import Batch, build, layout
from penstock.core import commands, snapshot
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import check, decide
from penstock.core.records import ScheduleSpec, Template, WebhookSpec
from penstock.core.state import Shard
from penstock.errors import PenstockError

NOW = 1_760_000_000_000


def ask(shard: Shard, command) -> None:
    for record in decide(shard, command, NOW).records:
        apply(shard, record)


def refusal(function, shard: Shard, command) -> tuple[type, str] | None:
    try:
        function(shard, command, NOW)
    except PenstockError as error:
        return type(error), error.code
    return None


def part(dice: Random) -> commands.Part:
    count = dice.randint(1, 3)
    columns = {layout.ID: [b"id-%d" % dice.randrange(8) if dice.random() < 0.8 else b"" for _ in range(count)]}
    return commands.Part(dice.randint(1, 2), Batch.open(build([b"1"] * count, columns=columns)))


def publish(dice: Random) -> commands.Publish:
    parts = [part(dice) for _ in range(dice.randint(1, 3))]
    producer = ("p", dice.randint(1, 2), dice.randrange(12)) if dice.random() < 0.5 else ("", 0, 0)
    return commands.Publish(parts, dice.getrandbits(80), *producer)


@pytest.mark.parametrize("seed", range(40))
def test_check_of_a_publish_agrees_with_its_decision(seed):
    dice = Random(seed)
    shard = Shard()
    ask(shard, commands.ConfigureQueue("a/b/c", parse_config({"max_messages": 8})))
    ask(shard, commands.ConfigureQueue("a/b/d", parse_config({})))
    for _ in range(40):
        command = publish(dice)
        before = snapshot.digest(shard)
        checked = refusal(check, shard, command)
        assert snapshot.digest(shard) == before
        assert checked == refusal(decide, shard, command)
        with suppress(PenstockError):
            ask(shard, command)


def test_part_of_a_queue_that_is_yet_to_be_created_only_counts_for_the_producer():
    shard = Shard()
    ask(shard, commands.ConfigureQueue("a/b/c", parse_config({"max_messages": 2})))
    new, old = commands.Part(0, Batch.open(build([b"1"] * 5))), commands.Part(1, Batch.open(build([b"1"] * 2)))
    ask(shard, commands.Publish([old], 1, "p", 1, 5))
    check(shard, commands.Publish([new, old], 1, "p", 1, 0), NOW)
    assert refusal(check, shard, commands.Publish([new, old], 1, "p", 1, 1))


def test_check_of_a_webhook_and_a_schedule_agrees_with_their_decisions():
    shard = Shard()
    hook = WebhookSpec("a/b/c", "g", "http://localhost/", [1_000], "json", 1_000, 1, "")
    ask(shard, commands.SetWebhook("1", hook, b"sealed"))
    never = ScheduleSpec("a/b/c", "0 0 30 2 *", Template(b"", False))
    for command in (
        commands.SetWebhook("1", hook), commands.SetWebhook("2", hook, b"sealed"), commands.SetWebhook("3", hook),
        commands.SetSchedule("s", never), commands.SetSchedule("s", ScheduleSpec("a/b/c", "* * * * *", never.message)),
    ):  # fmt: skip
        assert refusal(check, shard, command) == refusal(decide, shard, command)

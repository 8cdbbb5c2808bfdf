"""The forms of calls on a link: every method of the facade has one, and values come back as they were."""

from __future__ import annotations

import pytest
from one_shard import OF_ONE_SHARD

from penstock.batch import Batch, build, layout
from penstock.broker.routes import ROUTES
from penstock.broker.types import (
    DeliveredRun,
    FoundLetter,
    LeaseReply,
    LetterPage,
    PublishedRun,
    PublishPart,
    PublishReply,
)
from penstock.cluster.codec import codec_of, decode_error, encode_error
from penstock.cluster.watches import WATCHES
from penstock.core.state.letter_chunks import DeadLetter
from penstock.errors import CrossShard, Internal, Unavailable
from penstock.ids import parse_queue
from penstock.security.principal import Principal
from penstock.security.scopes import parse_scopes
from penstock.wire.delivery import Settled
from penstock.wire.keys import KeyRequest

BATCH = Batch.open(build([b"1", b"22"], kind=layout.KIND_BYTES))
BIG = (1 << 127) + 5


@pytest.mark.parametrize("method", sorted({*ROUTES, *OF_ONE_SHARD}))
def test_every_method_has_a_form(method):
    codec_of(method)


def test_arguments_keep_their_places_and_names():
    codec = codec_of("messages.lease")
    sent = (parse_queue("orders"),), {"max": 5, "ack": ["r1.0.1.ab.0"]}
    assert codec.decode_arguments(codec.encode_arguments(*sent)) == sent
    assert codec_of("queues.put").decode_arguments(
        codec_of("queues.put").encode_arguments((parse_queue("a"), {"order": "heap"}), {"confirm": None})
    ) == ((parse_queue("a"), {"order": "heap"}), {"confirm": None})


def test_messages_are_sent_as_their_frames():
    codec = codec_of("messages.publish")
    (parts, producer), options = codec.decode_arguments(
        codec.encode_arguments(([PublishPart(parse_queue("orders"), BATCH)], None), {})
    )
    assert (producer, options) == (None, {})
    assert parts[0].queue == parse_queue("orders") and list(parts[0].batch.payloads()) == [b"1", b"22"]
    reply = PublishReply([PublishedRun(0, "a", 1, 2, 3, BIG, False, None)], True, ("priority",))
    found = codec.decode_reply(codec.encode_reply(reply))
    assert (found.runs, found.durable, list(found.ignored)) == (reply.runs, True, ["priority"])


def test_leases_and_letters_keep_ids_of_128_bits():
    run = DeliveredRun("a/b/c", 1, 2, 2, BIG, 5, BATCH, 3, "r1.0.1.ab.", 9, 10)
    codec = codec_of("messages.lease")
    found = codec.decode_reply(codec.encode_reply(LeaseReply([run], [Settled("r", "acked")], 4)))
    assert found.results == [Settled("r", "acked")] and found.generation == 4
    assert [(each.id, each.receipt, list(each.batch.payloads())) for each in found.runs] == [
        (BIG, "r1.0.1.ab.", [b"1", b"22"])
    ]
    letter = FoundLetter(run, "default", DeadLetter(2, 5, 6, 7, "c", "rejected", "bad"))
    page = LetterPage({"dead_letters": [letter], "total": 1, "page": 1, "limit": 50, "next": None})
    codec = codec_of("dead_letters.page")
    again = codec.decode_reply(codec.encode_reply(page))
    assert again["total"] == 1 and again["dead_letters"][0].letter == letter.letter
    assert again["dead_letters"][0].run.id == BIG


def test_principals_keep_their_scopes():
    by = Principal("key", "k1", "billing", parse_scopes(["publish:shop/*", "key.admin:*"]), 12)
    codec = codec_of("keys.create")
    (asked, found), _ = codec.decode_arguments(
        codec.encode_arguments((KeyRequest(name="n", scopes=["publish:shop/a"]),), {"by": by})
    )
    assert asked.scopes == ["publish:shop/a"]
    assert (found.id, found.scopes, found.expires_at_ms) == (by.id, by.scopes, 12)


def test_errors_keep_their_kind_and_details():
    error = decode_error(encode_error(CrossShard("no", details={"shards": [0, 1]})))
    assert type(error) is CrossShard and error.details == {"shards": [0, 1]} and error.message == "no"
    error = decode_error(encode_error(Unavailable("later", retry_after_ms=5)))
    assert type(error) is Unavailable and error.retry_after_ms == 5


def test_error_that_is_a_bug_leaves_its_text_in_the_log_of_its_process():
    error = decode_error(encode_error(ValueError("secret")))
    assert type(error) is Internal and "secret" not in error.message


def test_methods_that_watch_are_sent_without_their_function():
    for method in WATCHES:
        codec = codec_of(method)
        arguments = () if method == "feed.watch" else (parse_queue("orders"),)
        assert codec.decode_arguments(codec.encode_arguments(arguments, {})) == (arguments, {})

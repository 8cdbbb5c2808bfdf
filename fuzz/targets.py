"""The targets. Each states its invariant; a broken invariant raises.

A target is a function of bytes with a list of seeds: well-formed inputs from which the driver starts. Errors of the
target's contract are caught inside; any other exception is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from tempfile import NamedTemporaryFile
from typing import NamedTuple
from urllib.parse import urlsplit

import google_crc32c
import msgspec
from yarl import URL

from fuzz import dialects, grpc_calls, http_requests, websocket
from fuzz.dialects import served
from penstock.batch import Batch, build, layout
from penstock.batch.check import check_client_frame
from penstock.broker.receipts import Claims
from penstock.core import snapshot
from penstock.core.apply import apply
from penstock.core.commands import Outcome
from penstock.core.config import DEFAULT, parse_config
from penstock.core.records import Acked, GroupCreated, Leased, Published, QueueConfigured, Record
from penstock.core.state import Shard
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.journal.blobs import HEADER as BLOB_HEADER
from penstock.journal.blobs import (
    SEGMENT_MAGIC,
    SNAPSHOT_MAGIC,
    SegmentDescription,
    SegmentPart,
    decode_segment,
    decode_snapshot,
    encode_description,
    encode_snapshot,
    seal_blob,
)
from penstock.journal.codec import PREFIX, UnknownRecord, decode, encode
from penstock.journal.frame import BadFrame, FrameWriter, find_frame, read_frame
from penstock.journal.port import Damaged
from penstock.runtime.recovery import load_snapshot
from penstock.server.config import ConfigError, load_settings
from penstock.transports.webhooks.guard import parse_url
from penstock.wire import cloudevents
from penstock.wire.delivery import LeaseMeta, Run, decode_delivery, encode_delivery
from penstock.wire.filters import parse_filter
from penstock.wire.messages import PublishFrameQuery
from penstock.wire.parse import parse_query
from penstock.wire.publishing import PlainPublish, batch_of, parse_publish, plain_batch

_PORTS = {"https": 443, "http": 80}


class Target(NamedTuple):
    check: Callable[[bytes], None]
    seeds: list[bytes]


FULL_FRAME = build(
    [b"1", b'"two"', b"three"],
    kinds=[1, 1, 0],
    columns={
        layout.PRIORITY: [1, -2, 3],
        layout.DELAY_MS: [0, 5, 0],
        layout.TTL_MS: [0, 0, 9],
        layout.MAX_RETRIES: [-1, 0, 7],
        layout.KEY: [b"a", b"", b"c"],
        layout.ID: [b"x", b"y", b""],
        layout.HEADERS: [b'{"h":"v"}', b"", b""],
    },
)
PLAIN_FRAME = build([b"{}", b"[1]"])
RECORDS: list[Record] = [
    QueueConfigured(1, 1, "default/default/q", DEFAULT),
    GroupCreated(2, 1, 0, "default", [0]),
    Published(3, 1, 0, 0, 5 << 80, Batch.open(FULL_FRAME), "p", 1, [0, 3]),
    Leased(4, 1, 0, 0, 1, 77, 30_000, [0, 1, 1], "worker"),
    Acked(5, 1, 0, 0, 1, [0, 1]),
]


def _body(records: list[Record]) -> bytes:
    return b"".join(part for record in records for part in encode(record) if part is not None)


def _frame(body: bytes) -> bytes:
    return FrameWriter(bytes(16), 1).seal(9, [body]) + body


def batch_frame(data: bytes) -> None:
    """Invariant: BadBatch, or a batch of which every column, row and run can be read; checking raises PenstockError."""
    try:
        batch = Batch.open(data)
        check_client_frame(batch)
    except PenstockError:
        return
    assert len(batch.payloads()) == batch.count == len(batch.kinds())
    assert batch.run(0, batch.count) is batch
    assert batch.run(batch.count - 1, batch.count).payload(0) == batch.payload(batch.count - 1)
    assert batch.pick([0]).payloads() == batch.payloads()[:1]


def delivery(data: bytes) -> None:
    """Invariant: BadBatch, or as many batches as runs, each of the size that its run has."""
    try:
        meta, batches = decode_delivery(data, LeaseMeta)
    except InvalidRequest:
        return
    assert [run.count for run in meta.runs] == [batch.count for batch in batches]


def journal_frame(data: bytes) -> None:
    """Invariant: BadFrame, or a frame inside the data; a whole frame is found at any position."""
    view = memoryview(data)
    try:
        frame = read_frame(view, 0)
    except BadFrame:
        return
    assert frame.size <= len(data)
    assert find_frame(memoryview(b"PJ" + data), 1, newer_than=0) == 2


def records(data: bytes) -> None:
    """Invariant: UnknownRecord, or records that encode to something that decodes to the same."""
    try:
        decoded = [record for _, record in decode(memoryview(data))]
    except UnknownRecord:
        return
    again = [record for _, record in decode(memoryview(_body(decoded)))]
    assert [type(record) for record in again] == [type(record) for record in decoded]
    assert _body(again) == _body(decoded)


def record_content(data: bytes) -> None:
    """Invariant: as for records, with a correct checksum: the map and the frame are tested."""
    cut = int.from_bytes(data[:2], "little") % (len(data) + 1)
    meta, attached = data[2:cut], data[max(2, cut) :]
    crc = google_crc32c.extend(google_crc32c.value(meta), attached)
    records(PREFIX.pack(len(meta), len(attached), crc) + meta + attached)


def blob(data: bytes) -> None:
    """Invariant: Damaged for any fault of a snapshot or a segment."""
    for read in (decode_snapshot, decode_segment):
        try:
            read("blob", data)
        except Damaged:
            continue


def _load_snapshot(name: str, data: bytes) -> object:
    return load_snapshot(name, data, lambda _kind, _stored, length: bytes(length))


def blob_content(data: bytes) -> None:
    """Invariant: Damaged, or a state: also with a correct checksum, if only the content is wrong."""
    for magic, read in ((SNAPSHOT_MAGIC, _load_snapshot), (SEGMENT_MAGIC, decode_segment)):
        try:
            read("blob", b"".join(seal_blob(magic, [data])))
        except Damaged:
            continue


def settings(data: bytes) -> None:
    """Invariant: ConfigError, or settings with addresses that can be listened on; from a file and from variables."""
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        lines = data.decode("latin-1").splitlines()
        variables = dict(line.partition("=")[::2] for line in lines if not line.startswith("PENSTOCK_CONFIG"))
        for environment, path in (({}, file.name), (variables, None)):
            try:
                assert load_settings({}, environment, path).listen_address.port <= 65535
            except ConfigError:
                continue


def receipts(data: bytes) -> None:
    """Invariant: any texts make claims, and each text is named in the results, in order."""
    texts = data.decode("latin-1").split("\n")
    claims = Claims(texts)
    outcomes = [[Outcome(claim.first, claim.stop, "stale")] for claim in claims.claims]
    assert [result.receipt for result in claims.results(outcomes)] == texts


def publish_body(data: bytes) -> None:
    """Invariant: PenstockError, or a batch with one payload per message."""
    try:
        asked = parse_publish(data)
        if isinstance(asked, PlainPublish):
            assert plain_batch(asked).count == len(asked.payloads)
        else:
            good = [message for message in asked.messages if not isinstance(message, PenstockError)]
            if good:
                assert batch_of(good).count == len(good)
    except PenstockError:
        return


def query(data: bytes) -> None:
    """Invariant: InvalidRequest, or a query."""
    try:
        parse_query(PublishFrameQuery, data)
    except InvalidRequest:
        return


def queue_config(data: bytes) -> None:
    """Invariant: InvalidRequest, or a configuration that parses to itself."""
    try:
        values = msgspec.json.decode(data)
        if not isinstance(values, dict):
            return
        config = parse_config(values)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidRequest):
        return
    assert parse_config(msgspec.to_builtins(config)) == config


def _content(record: Record) -> bytes:
    """The arguments of `record_content`: the end of the map, the map, the attachment."""
    head, attached = encode(record)
    meta = head[PREFIX.size :]
    return (len(meta) + 2).to_bytes(2, "little") + meta + (attached or b"")


def _snapshot_seed() -> bytes:
    shard = Shard()
    for record in RECORDS:
        apply(shard, record)
    values = {
        "index": 1,
        "chain": bytes(16),
        "state": snapshot.dump(shard),
        "pieces": [],
        "marks": [],
        "next_segment": 1,
    }
    return b"".join(encode_snapshot(values))


def _segment_seed() -> bytes:
    return encode_description(SegmentDescription([SegmentPart("default/default/q", 0, 0, 3, 3)])) + _body(RECORDS[2:3])


_RUN = Run("q", 0, 0, 3, "0" * 26, 1, len(FULL_FRAME), 1, "r1.0.1.00000000000000ff.", 9)


class _Letter:
    """The fields that filters are applied to: every kind of value once."""

    def field(self, name: str) -> str | int | None:
        return {"age": 5_000, "attempts": 3, "reason": "rejected", "error": "Read timeout"}.get(name)

    def header(self, name: str) -> str | None:
        return {"tenant": "acme"}.get(name)

    def payload(self) -> object:
        return {"order": {"total": 120.5, "items": [1, "two", None]}, "paid": True}


def letter_filter(data: bytes) -> None:
    """Invariant: InvalidRequest with the field's name and a position inside the text, or an answer yes or no."""
    text = data.decode("utf-8", "replace")
    try:
        found = parse_filter(text)
    except InvalidRequest as error:
        assert error.details["field"] == "filter" and 0 <= error.details["position"] <= len(text)
        return
    assert found.matches(_Letter()) in (True, False)


def dialect_request(data: bytes) -> None:
    """Invariant: an answer in JSON with a status below 500, or none because the request would have waited."""
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    path, _, query = target.partition("?")
    answer = served().ask(method, path, query.encode("latin-1"), body)
    if answer is not None:
        assert answer.status < 500, answer
        assert not answer.body or msgspec.json.decode(answer.body) is not None


def webhook_url(data: bytes) -> None:
    """Invariant: InvalidRequest, or other parsers see the same host and port in the URL as the guard."""
    url = data.decode("utf-8", "replace")
    try:
        target = parse_url(url)
    except InvalidRequest:
        return
    ours = (target.scheme, target.host.lower(), target.port)
    split, sent = urlsplit(url), URL(url, encoded=True)
    assert (split.scheme, split.hostname, split.port or _PORTS[split.scheme]) == ours
    assert sent.host is not None and (sent.scheme, sent.host.lower(), sent.port) == ours
    assert split.username is None and sent.user is None and sent.password is None
    assert target.address is not None or not sent.host.replace(".", "").isdigit()


def cloud_event(data: bytes) -> None:
    """Invariant: InvalidRequest, or an event; and an event that is encoded decodes to itself."""
    for events in (cloudevents.from_json_batch, lambda body: [cloudevents.from_json(body)]):
        try:
            found = events(data)
            batch_of([cloudevents.as_message(event, dedup=True) for event in found])
        except (InvalidRequest, TooLarge):
            continue
        for event in found:
            again = cloudevents.from_json(cloudevents.to_json(event.attributes, event.data, is_json=event.is_json))
            assert (again.attributes, again.data or b"") == (event.attributes, event.data)


def dialect_frame(data: bytes) -> None:
    """Invariant: frames in JSON with a type, for any input of a subscriber."""
    for text in served().say(data.decode("utf-8", "replace")):
        assert "type" in msgspec.json.decode(text)


TARGETS: dict[str, Target] = {
    "webhook_url": Target(
        webhook_url,
        [b"https://example.com:8443/a?b=c", b"http://10.0.0.1:80/", b"https://[2606:4700::1]/", b"https://a@b:1/#c"],
    ),
    "cloud_event": Target(
        cloud_event,
        [
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-31T12:00:00Z","data":{"a":[1]}}',
            b'[{"specversion":"1.0","id":"1","source":"/s","type":"t","n":7,"b":true,"data_base64":"AP8="}]',
        ],
    ),
    "grpc_call": Target(grpc_calls.grpc_call, grpc_calls.SEEDS),
    "http_requests": Target(http_requests.http_requests, http_requests.SEEDS),
    "batch_frame": Target(batch_frame, [FULL_FRAME, PLAIN_FRAME]),
    "delivery": Target(delivery, [encode_delivery(LeaseMeta([_RUN]), [FULL_FRAME])]),
    "journal_frame": Target(journal_frame, [_frame(_body(RECORDS)), _frame(b"")]),
    "records": Target(records, [_body(RECORDS), *(_body([record]) for record in RECORDS)]),
    "record_content": Target(record_content, [_content(record) for record in RECORDS]),
    "blob": Target(blob, [_snapshot_seed(), b"".join(seal_blob(SNAPSHOT_MAGIC, [b"\x80"]))]),
    "blob_content": Target(blob_content, [_snapshot_seed()[BLOB_HEADER.size :], _segment_seed()]),
    "settings": Target(
        settings,
        [
            b'data_dir = "./x"\nlisten = "127.0.0.1:7400"\nfsync = "always"\nshutdown_grace_s = 5\n',
            b"PENSTOCK_LISTEN=[::1]:0\nPENSTOCK_AUTO_CREATE=false\nPENSTOCK_SHUTDOWN_GRACE_S=5",
        ],
    ),
    "receipts": Target(receipts, [b"r1.0.1.00000000000000ff.1\nr1.0.1.00000000000000ff.2", b"r1.0.9.0.5-9", b"x"]),
    "publish_body": Target(
        publish_body,
        [
            b'{"queue":"q","messages":[{"payload":{"a":[1,2]}},{"payload":null}]}',
            b'{"queue":"q","atomic":false,"messages":[{"payload_b64":"aGk=","key":"k","delay_ms":1,"headers":{"a":"b"}}]}',
        ],
    ),
    "letter_filter": Target(
        letter_filter,
        [
            b'reason = "max_retries" and error ~ "timeout" and header.tenant = "acme" and payload.order.total > 100',
            b'not (age > 1h or attempts <= 2.5e1) and payload.order."items"[1] != null or key !~ "x"',
        ],
    ),
    "dialect_frame": Target(dialect_frame, dialects.FRAMES),
    "dialect_request": Target(dialect_request, dialects.SEEDS),
    "websocket_json": Target(websocket.json_message, websocket.JSON_SEEDS),
    "websocket_msgpack": Target(websocket.msgpack_message, websocket.MSGPACK_SEEDS),
    "websocket_bytes": Target(websocket.socket_bytes, websocket.BYTES_SEEDS),
    "query": Target(query, [b"queue=orders&producer=p&epoch=1&seq=17", b"queue=%41"]),
    "queue_config": Target(
        queue_config, [b'{"partitions":2,"backoff":{"kind":"fixed","base_ms":5},"retention":{"mode":"keep"}}']
    ),
}

"""Lease messages and settle them, alone or as a member of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.client.calls.call import BATCH, Call, Response, encode
from penstock.client.messages.leased import LeasedRun
from penstock.ids import QueuePath
from penstock.wire.delivery import LeaseMeta, Settled, decode_delivery
from penstock.wire.replies import LeftReply, SettleReply, ShareReply, TransactReply

_decode_settled = msgspec.json.Decoder(SettleReply).decode
_decode_share = msgspec.json.Decoder(ShareReply).decode
_decode_left = msgspec.json.Decoder(LeftReply).decode
_decode_transacted = msgspec.json.Decoder(TransactReply).decode


class LeaseResult(NamedTuple):
    runs: list[LeasedRun]
    results: list[Settled]
    """The outcome of the acks that the call carried."""
    generation: int | None = None
    """Of the group, in answers to its members."""


def lease(
    source: str,
    *,
    in_scope: bool = False,
    group: str,
    max: int,
    lease_ms: int | None = None,
    wait_ms: int = 0,
    consumer: str = "",
    ack: Sequence[str] = (),
    member: str = "",
    generation: int = 0,
) -> Call[LeaseResult]:
    """From a queue, or from all queues of a scope. Without `lease_ms` each queue's own setting applies."""
    place = "scope" if in_scope else "queue"
    body: dict[str, Any] = {place: source, "group": group, "max": max, "wait_ms": wait_ms}
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    if consumer:
        body["consumer"] = consumer
    if ack:
        body["ack"] = ack
    if member:
        body |= {"member": member, "generation": generation}
    return Call("POST", "/v1/lease", _read_leased, encode(body), accept=BATCH, wait_ms=wait_ms)


def _read_leased(response: Response) -> LeaseResult:
    meta, batches = decode_delivery(response.body, LeaseMeta)
    runs = [LeasedRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)]
    return LeaseResult(runs, meta.results or [], meta.generation)


# -- settle ---------------------------------------------------------------------------------------------------------


def ack(receipts: Sequence[str]) -> Call[list[Settled]]:
    return _settle("ack", receipts, {})


def nack(
    receipts: Sequence[str], *, delay_ms: int | None, error: str, max_retries: int | None = None
) -> Call[list[Settled]]:
    """`max_retries`: give up a message that had so many, even if its queue allows more."""
    more = {} if max_retries is None else {"max_retries": max_retries}
    return _settle("nack", receipts, {"delay_ms": delay_ms, "error": error, **more})


def reject(receipts: Sequence[str], *, error: str) -> Call[list[Settled]]:
    return _settle("reject", receipts, {"error": error})


def extend(receipts: Sequence[str], *, lease_ms: int) -> Call[list[Settled]]:
    return _settle("extend", receipts, {"lease_ms": lease_ms})


def release(receipts: Sequence[str]) -> Call[list[Settled]]:
    """Give back messages that were leased ahead and never handled; no attempt is counted."""
    return _settle("release", receipts, {})


def _settle(verb: str, receipts: Sequence[str], more: dict[str, Any]) -> Call[list[Settled]]:
    return Call("POST", f"/v1/{verb}", _read_results, encode({"receipts": receipts, **more}))


def _read_results(response: Response) -> list[Settled]:
    return _decode_settled(response.body).results


def transact(receipts: Sequence[str], items: Sequence[dict[str, Any]]) -> Call[TransactReply]:
    body = encode({"ack": receipts, "publish": items})
    return Call("POST", "/v1/transact", lambda response: _decode_transacted(response.body), body)


# -- members of groups ----------------------------------------------------------------------------------------------


def join_group(
    queue: QueuePath, *, group: str, member: str, session_ms: int, drain_ms: int
) -> Call[ShareReply]:  # fmt: skip
    body = {"queue": queue, "group": group, "member": member, "session_ms": session_ms, "drain_ms": drain_ms}
    return Call("POST", "/v1/groups/join", _read_share, encode(body))


def heartbeat(queue: QueuePath, *, group: str, member: str, generation: int) -> Call[ShareReply]:
    body = {"queue": queue, "group": group, "member": member, "generation": generation}
    return Call("POST", "/v1/groups/heartbeat", _read_share, encode(body))


def leave_group(queue: QueuePath, *, group: str, member: str, generation: int | None) -> Call[LeftReply]:
    body = {"queue": queue, "group": group, "member": member, "generation": generation}
    return Call("POST", "/v1/groups/leave", lambda response: _decode_left(response.body), encode(body))


def _read_share(response: Response) -> ShareReply:
    return _decode_share(response.body)

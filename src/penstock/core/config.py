"""How a queue behaves: the settings of `GET /v1/queues/{path}`, as the machine knows them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import limits
from penstock.choices import with_choices
from penstock.errors import Conflict, InvalidRequest
from penstock.placement import is_placement


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["none", "fixed", "exponential", "steps"] = "exponential"
    base_ms: int = 1_000
    factor: float = 2.0
    cap_ms: int = 60_000
    jitter: float = 0.1
    steps_ms: tuple[int, ...] = ()
    """Only of `steps`: how long to wait after the first failure, the second, and so on; the last one from there on."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["until_acked", "keep"] = "until_acked"
    ms: int | None = None
    bytes: int | None = None


class FairShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = False
    weights: dict[str, int] = {}
    """Tenant -> messages per turn; 1 for those not named."""
    max_in_flight: int | None = None
    """Per tenant and group."""


class DeadLetterAlarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds of the dead letter alarm: the number of letters, or of new letters within a minute."""

    count: int | None = None
    per_minute: int | None = None


class QueueConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partitions: int = 1
    order: Literal["fifo", "lanes", "heap"] = "fifo"
    lane_weights: tuple[int, int, int, int, int] = (50, 25, 15, 7, 3)
    heap_mode: Literal["min", "max"] = "min"
    top_k: int = 1
    ordered_keys: bool = False
    park_dead_keys: bool = False
    """Ordered keys: a key whose message was given up stays blocked until its dead letter is redriven or deleted."""
    fair_share: FairShare = FairShare()
    queue_priority: int = 0
    exclusive: bool = False
    """One lease at a time in each group, see `exclusive.py`."""
    strict_leases: bool = False
    """Settling by message id takes the name of the lease's holder; otherwise it is enough that there is one lease."""
    lease_ms: int = 30_000
    max_retries: int = 3
    backoff: Backoff = Backoff()
    dead_letter: bool = True
    dead_letter_ttl_ms: int | None = None
    dead_letter_max: int | None = None
    dead_letter_alarm: DeadLetterAlarm | None = None
    delay_ms: int = 0
    window_ms: int = 0
    window_max_wait_ms: int | None = None
    ttl_ms: int | None = None
    max_messages: int | None = None
    max_payload_bytes: int = limits.PAYLOAD_BYTES_MAX
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    retention: Retention = Retention()
    durability: Literal["default"] = "default"
    compression: Literal["none"] = "none"
    encryption: bool = False
    """Payloads and headers are encrypted in the journal and in all other files."""
    placement: str = "queue"
    """The shard of the queue, see `penstock/placement.py`: `queue`, `namespace` or `shard:<number>`."""
    spread: Literal[1] = 1

    @property
    def indexed(self) -> bool:
        """True if the order depends on more than offsets: the next message is found in an index, not by a cursor."""
        return self.order != "fifo" or self.ordered_keys or self.fair_share.enabled


DEFAULT = QueueConfig()

_BOUNDS: tuple[tuple[str, int, int], ...] = (
    ("partitions", 1, limits.PARTITIONS_MAX),
    ("top_k", 1, limits.TOP_K_MAX),
    ("queue_priority", -(2**31), 2**31 - 1),
    ("lease_ms", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    ("max_retries", 0, limits.RETRIES_MAX),
    ("dead_letter_ttl_ms", 1, limits.TTL_MS_MAX),
    ("dead_letter_max", 1, 2**53),
    ("delay_ms", 0, limits.DELAY_MS_MAX),
    ("window_ms", 0, limits.WINDOW_MS_MAX),
    ("window_max_wait_ms", 0, limits.DELAY_MS_MAX),
    ("ttl_ms", 1, limits.TTL_MS_MAX),
    ("max_messages", 1, 2**53),
    ("max_payload_bytes", 1, limits.PAYLOAD_BYTES_MAX),
)


def shared(config: QueueConfig) -> QueueConfig:
    """Equal settings: thousands of queues with the default ones share them in memory."""
    return DEFAULT if config == DEFAULT else config


def parse_config(values: dict[str, Any], base: QueueConfig = DEFAULT) -> QueueConfig:
    """`base` with these values changed; refuses what is unknown, out of bounds or not supported, by its name."""
    before = msgspec.to_builtins(base)
    merged = {**before, **values}
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            merged[name] = {**before[name], **_cleared(name, value), **value}
    try:
        config = msgspec.convert(merged, QueueConfig)
    except msgspec.ValidationError as error:
        field = _field_of(str(error))
        reason, _, path = str(error).partition(" - at `")
        reason = with_choices(reason, path, QueueConfig)
        about = "" if f"`{field}`" in reason else f", {field}"
        raise InvalidRequest(f"queue configuration{about}: {reason}", details={"field": field}) from None
    for name, low, high in _BOUNDS:
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise _refused(name, f"{value} is outside {low} to {high}")
    _check_order(config)
    if not is_placement(config.placement):
        raise _refused("placement", f"{config.placement[:64]!r} is neither 'queue', 'namespace' nor 'shard:<number>'")
    backoff, retention = config.backoff, config.retention
    if not 0 <= backoff.base_ms <= backoff.cap_ms <= limits.DELAY_MS_MAX:
        raise _refused("backoff", "needs 0 <= base_ms <= cap_ms")
    if not 1 <= backoff.factor <= 100 or not 0 <= backoff.jitter <= 1:
        raise _refused("backoff", "needs a factor of 1 to 100 and a jitter of 0 to 1")
    steps = backoff.steps_ms
    if (backoff.kind == "steps") != bool(steps):
        raise _refused("backoff", "kind 'steps' and steps_ms, a list of waits, go together")
    if len(steps) > limits.BACKOFF_STEPS_MAX or not all(0 <= step <= limits.DELAY_MS_MAX for step in steps):
        raise _refused("backoff", f"steps_ms are 1 to {limits.BACKOFF_STEPS_MAX} waits of 0 to {limits.DELAY_MS_MAX}")
    if config.dead_letter_alarm is not None:
        bounds = (config.dead_letter_alarm.count, config.dead_letter_alarm.per_minute)
        if bounds == (None, None) or any(bound is not None and bound < 1 for bound in bounds):
            raise _refused("dead_letter_alarm", "needs a count or per_minute of at least 1, or null for no alarm")
    for name in ("ms", "bytes"):
        value = getattr(retention, name)
        if value is not None and (retention.mode != "keep" or value < 1):
            raise _refused("retention", f"{name} is a positive bound of mode 'keep'")
    return config


def _cleared(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Fields of an object that belong to the kind or mode it had before, and go with it."""
    if name == "backoff" and value.get("kind", "steps") != "steps":
        return {"steps_ms": ()}
    if name == "retention" and value.get("mode") == "until_acked":
        return {"ms": None, "bytes": None}
    return {}


def _check_order(config: QueueConfig) -> None:
    if config.exclusive and config.delivery == "at_most_once":
        raise _refused("exclusive", "at_most_once ends a message when it is delivered: there is no end to wait for")
    if not all(1 <= weight <= limits.WEIGHT_MAX for weight in config.lane_weights):
        raise _refused("lane_weights", f"five weights from 1 to {limits.WEIGHT_MAX}, critical first")
    if config.park_dead_keys and not config.ordered_keys:
        raise _refused("park_dead_keys", "only queues with ordered_keys have keys to park")
    share = config.fair_share
    if len(share.weights) > limits.TENANT_WEIGHTS_MAX:
        raise _refused("fair_share", f"at most {limits.TENANT_WEIGHTS_MAX} tenants can have weights of their own")
    if not all(1 <= weight <= limits.WEIGHT_MAX for weight in share.weights.values()):
        raise _refused("fair_share", f"weights are 1 to {limits.WEIGHT_MAX}")
    if share.max_in_flight is not None and share.max_in_flight < 1:
        raise _refused("fair_share", "max_in_flight is at least 1")


ORDER_FIELDS = ("order", "heap_mode", "ordered_keys")


def same_order(old: QueueConfig, new: QueueConfig) -> bool:
    """True if what is ready stands in the same order under both: other weights and caps do not change it."""
    return old.fair_share.enabled == new.fair_share.enabled and all(
        getattr(old, name) == getattr(new, name) for name in (*ORDER_FIELDS, "park_dead_keys")
    )


def check_change(old: QueueConfig, new: QueueConfig, *, empty: bool, dead_letters: int = 0) -> None:
    """Refuse a change that stored messages could not follow, or those that may yet be redriven."""
    if new.partitions < old.partitions:
        raise _refused("partitions", f"cannot go down from {old.partitions} to {new.partitions}: they hold messages")
    if old.encryption and not new.encryption:
        raise _refused("encryption", "cannot be turned off: messages that are stored would become readable again")
    # The traits of a stored message that the new order needs (its priority, its key) were not kept under the old one.
    changed = [name for name in ORDER_FIELDS if getattr(old, name) != getattr(new, name)]
    if old.fair_share.enabled != new.fair_share.enabled:
        changed.append("fair_share")
    if changed and not empty:
        raise Conflict(
            f"queue configuration, {changed[0]}: can only change while the queue holds no messages; consume or purge "
            "them first",
            details={"field": changed[0]},
        )
    if changed and dead_letters:
        raise Conflict(
            f"queue configuration, {changed[0]}: can only change while the queue holds no messages, and {dead_letters} "
            "of its dead letters could still be redriven; redrive and consume, delete or purge them first",
            details={"field": changed[0], "dead_letters": dead_letters},
        )


def keeps_messages_shorter(old: QueueConfig, new: QueueConfig) -> bool:
    """True if stored messages may be let go sooner under the new settings than under the old ones.

    A queue that keeps messages until they are acked has no bounds; one that keeps them within bounds lets them go also
    unacked. `ttl_ms` and `max_messages` are no part of this: they apply to what is published later.
    """
    if (old.retention.mode, new.retention.mode) == ("keep", "until_acked"):
        return True
    return _is_tighter(old.retention.ms, new.retention.ms) or _is_tighter(old.retention.bytes, new.retention.bytes)


def keeps_dead_letters_shorter(old: QueueConfig, new: QueueConfig) -> bool:
    return _is_tighter(old.dead_letter_max, new.dead_letter_max) or _is_tighter(
        old.dead_letter_ttl_ms, new.dead_letter_ttl_ms
    )


def _is_tighter(old: int | None, new: int | None) -> bool:
    return new is not None and (old is None or new < old)


def _field_of(text: str) -> str:
    """The field's name out of msgspec's `$.backoff.kind` or of its 'unknown field `x`'."""
    if "unknown field" in text:
        return text.split("`")[1]
    return text.rpartition("$.")[2].rstrip("`") if "$." in text else ""


def _refused(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"queue configuration, {name}: {reason}", details={"field": name})

"""What clients saw of a broker, and whether it can be true.

`check` is a pure function over recorded events. It knows nothing of the broker but what docs/guarantees.md promises,
and nothing of a message but its token, which its producer put into the payload. Clients never guess: a request whose
answer was lost has the outcome `unknown`, and the checker then believes both that it happened and that it did not.
Only what cannot be true either way is a violation, so a violation is never a matter of bad luck.

Times are milliseconds of one wall clock, shared by clients and broker. The broker's own time may be a few milliseconds
behind it, never ahead; `SLACK_MS` is more than that.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

SLACK_MS = 20


class Published(NamedTuple):
    """One request to publish. A retry is a request of its own, with the same tokens."""

    queue: str
    tokens: tuple[str, ...]
    outcome: Literal["stored", "refused", "unknown"]
    ids: tuple[str, ...] = ()
    """Of a request that was answered: the id of each message."""
    due_ms: int = 0
    """Not to be delivered before this."""


class Delivered(NamedTuple):
    """One message in the answer to a lease."""

    queue: str
    group: str
    token: str
    id: str
    receipt: str
    """Prefix of its lease, then its offset."""
    attempt: int
    at_ms: int
    """When the answer was read."""
    deadline_ms: int
    lease_ms: int
    intact: bool = True
    """The payload is, byte for byte, what was published under this token."""


class Settled(NamedTuple):
    """The outcome of one receipt."""

    kind: Literal["ack", "nack", "reject", "release", "extend"]
    receipt: str
    sent_ms: int
    at_ms: int
    """When it was answered, or given up."""
    status: str
    """As answered, or `unknown`."""
    until_ms: int = 0
    """Of a retry: when it is due. Of an extension: the new deadline."""
    lease_ms: int = 0
    """Of an extension: what was asked for."""


class Restarted(NamedTuple):
    """The broker was killed and surely dead at `killed_ms`; the next one was started no earlier than `started_ms`."""

    killed_ms: int
    started_ms: int
    queues: frozenset[str] | None = None
    """Those that the killed process served; None: all."""


Event = Published | Delivered | Settled | Restarted


class Place(NamedTuple):
    """One message in one group."""

    queue: str
    group: str
    token: str

    def __str__(self) -> str:
        return f"{self.token} ({self.queue}, {self.group})"


class Terms(NamedTuple):
    """The configuration and the groups of a queue."""

    groups: tuple[str, ...]
    max_retries: int


class Final(NamedTuple):
    """The broker's own statistics at the end."""

    stored: dict[str, int]
    """Per queue: how many messages it ever stored, as its offsets say."""
    logs: dict[str, list[tuple[str, str]]]
    """(token, id) of every message, for queues that keep them all."""
    dead: list[Place]
    left: list[Place]
    """Neither acked nor dead."""


class Verdict(NamedTuple):
    violations: list[str]
    """Each begins with the name of the rule that was broken."""
    counts: dict[str, int]


def check(events: Sequence[Event], final: Final, queues: dict[str, Terms]) -> Verdict:
    return _Checker(events, final, queues).verdict()


class _Hold(NamedTuple):
    """Certain facts about one delivery."""

    until_ms: float
    """No other consumer can have the message before this time; infinite if it was finished."""
    ended: Literal["", "acked", "dead"]
    maybe_acked: bool
    maybe_released: bool
    """Then the next delivery may be the same attempt."""


class _Fate(NamedTuple):
    """Certain facts about one message in one group."""

    acked: bool = False
    maybe_acked: bool = False
    dead: bool = False


class _Checker:
    def __init__(self, events: Sequence[Event], final: Final, queues: dict[str, Terms]):
        self._final = final
        self._queues = queues
        self._violations: list[str] = []
        self._counts: Counter[str] = Counter()
        self._publishes = [event for event in events if isinstance(event, Published)]
        self._restarts = sorted(
            (event for event in events if isinstance(event, Restarted)), key=lambda event: event.killed_ms
        )
        self._deliveries: dict[Place, list[Delivered]] = defaultdict(list)
        self._settles: dict[str, list[Settled]] = defaultdict(list)
        self._due: dict[tuple[str, str], int] = {}
        self._shortest: dict[str, int] = {}
        """Per lease, by prefix: the shortest duration that was ever asked for it. A restart gives at least that."""
        for event in events:
            if isinstance(event, Delivered):
                self._deliveries[Place(event.queue, event.group, event.token)].append(event)
                self._note_duration(event.receipt, event.lease_ms)
            elif isinstance(event, Settled):
                self._settles[event.receipt].append(event)
                if event.kind == "extend":
                    self._note_duration(event.receipt, event.lease_ms)

    def verdict(self) -> Verdict:
        stored = self._check_publishes()
        fates = {}
        for place, deliveries in self._deliveries.items():
            deliveries.sort(key=lambda delivery: (delivery.attempt, delivery.at_ms))
            fates[place] = self._check_deliveries(place, deliveries)
        self._account(stored, fates)
        return Verdict(self._violations, {"restarts": len(self._restarts), **self._counts})

    def _broken(self, rule: str, what: str) -> None:
        self._violations.append(f"{rule}: {what}")

    def _note_duration(self, receipt: str, lease_ms: int) -> None:
        prefix = receipt.rpartition(".")[0]
        self._shortest[prefix] = min(self._shortest.get(prefix, lease_ms), lease_ms)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def _check_publishes(self) -> dict[str, set[str]]:
        """The tokens that are certainly in each queue, because a reply confirmed or delivered them."""
        asked: dict[tuple[str, str], list[Published]] = defaultdict(list)
        ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        promised: dict[str, set[str]] = {queue: set() for queue in self._queues}
        for publish in self._publishes:
            self._counts[f"publishes {publish.outcome}"] += 1
            for position, token in enumerate(publish.tokens):
                asked[publish.queue, token].append(publish)
                if publish.outcome == "stored":
                    promised[publish.queue].add(token)
                    ids[publish.queue, token].add(publish.ids[position])
        self._due = {place: min(publish.due_ms for publish in requests) for place, requests in asked.items()}
        seen = self._seen(ids)
        for (queue, token), different in ids.items():
            if len(different) > 1:
                self._broken("duplicate", f"{token} is stored more than once in {queue}, as {sorted(different)}")
        for queue, token in seen:
            if all(publish.outcome == "refused" for publish in asked[queue, token]):
                self._broken("phantom", f"{token} is in {queue}, where no publish of it succeeded")
        for queue, entries in self._final.logs.items():
            for token in sorted(promised[queue].difference(token for token, _ in entries)):
                self._broken("lost", f"{token} was promised and is not in the log of {queue}")
        self._counts["messages promised"] = sum(map(len, promised.values()))
        for queue, token in seen:
            promised[queue].add(token)
        self._counts["messages stored"] = sum(map(len, promised.values()))
        return promised

    def _seen(self, ids: dict[tuple[str, str], set[str]]) -> set[tuple[str, str]]:
        """(queue, token) of all messages in replies, with their ids."""
        seen = {(place.queue, place.token) for place in (*self._deliveries, *self._final.dead, *self._final.left)}
        for place, deliveries in self._deliveries.items():
            ids[place.queue, place.token].update(delivery.id for delivery in deliveries)
        for queue, entries in self._final.logs.items():
            for token, times in Counter(token for token, _ in entries).items():
                if times > 1:
                    self._broken("duplicate", f"{token} stands {times} times in the log of {queue}")
            for token, message_id in entries:
                seen.add((queue, token))
                ids[queue, token].add(message_id)
        return seen

    # -- delivery -----------------------------------------------------------------------------------------------------

    def _check_deliveries(self, place: Place, deliveries: Sequence[Delivered]) -> _Fate:
        """The deliveries of one message to one group, in order."""
        self._counts["deliveries"] += len(deliveries)
        self._counts["redeliveries"] += len(deliveries) - 1
        due_ms = self._due.get((place.queue, place.token), 0)
        holds: list[_Hold] = []
        for delivery in deliveries:
            if not delivery.intact:
                self._broken("altered", f"{place} came with another payload")
            if delivery.at_ms + SLACK_MS < due_ms:
                self._broken("early", f"{place} came {due_ms - delivery.at_ms} ms before its time")
            if delivery.attempt > self._queues[place.queue].max_retries + 1:
                self._broken("over budget", f"{place} was delivered as attempt {delivery.attempt}")
            if holds:
                self._check_successor(place, deliveries[len(holds) - 1], holds[-1], delivery)
            holds.append(self._hold(place, delivery))
        acks = sum(hold.ended == "acked" for hold in holds)
        if acks > 1:
            self._broken("acked twice", f"{place}, under {acks} receipts")
        return _Fate(acks > 0, any(hold.maybe_acked for hold in holds), any(hold.ended == "dead" for hold in holds))

    def _check_successor(self, place: Place, earlier: Delivered, hold: _Hold, later: Delivered) -> None:
        if hold.ended:
            self._broken("redelivered", f"{place} was {hold.ended} and came again as attempt {later.attempt}")
        elif later.at_ms + SLACK_MS < hold.until_ms:
            self._broken(
                "double lease",
                f"{place} came as attempt {later.attempt} {hold.until_ms - later.at_ms:.0f} ms before the time of "
                f"attempt {earlier.attempt} was over",
            )
        if later.attempt == earlier.attempt and not hold.maybe_released:
            self._broken("attempt repeated", f"{place} was delivered twice as attempt {later.attempt}")

    def _hold(self, place: Place, delivery: Delivered) -> _Hold:
        """Walk through the life of a lease, believing of every unknown both that it happened and that it did not."""
        until: float = delivery.deadline_ms
        ended: Literal["", "acked", "dead"] = ""
        maybe_over = maybe_acked = maybe_released = maybe_back = False
        shortest = self._shortest[delivery.receipt.rpartition(".")[0]]
        restarts = [
            restart
            for restart in self._restarts
            if restart.killed_ms >= delivery.at_ms and (restart.queues is None or delivery.queue in restart.queues)
        ]
        for event in sorted([*self._settles.get(delivery.receipt, ()), *restarts], key=_moment):
            if isinstance(event, Restarted):
                # Leases that are held while the broker is killed start over.
                if not maybe_back and until > event.killed_ms + SLACK_MS:
                    until = max(until, event.started_ms + shortest)
                continue
            self._counts[event.status if event.status != "unknown" else f"{event.kind} unknown"] += 1
            if event.status == "stale":
                if not ended and not maybe_over and event.at_ms + SLACK_MS < until:
                    self._broken(
                        "stale too early", f"{place}: {event.kind}, {until - event.at_ms:.0f} ms before its time"
                    )
            elif ended:
                if event.status != "unknown":
                    self._broken("settled twice", f"{place} was {ended}, then {event.kind} was answered {event.status}")
            elif event.status == "unknown":
                if event.kind == "extend":
                    until = min(until, event.sent_ms + event.lease_ms)
                    continue
                maybe_over = True
                maybe_acked |= event.kind == "ack"
                if event.kind in ("nack", "release"):
                    maybe_back, until = True, min(until, event.sent_ms)
                    maybe_released |= event.kind == "release"
            elif event.status == "extended":
                until = event.until_ms
            elif event.status in ("acked", "dead_lettered"):
                ended, until = "acked" if event.status == "acked" else "dead", math.inf
            else:
                maybe_over = maybe_back = True
                maybe_released |= event.status == "released"
                until = event.until_ms if event.status == "retrying" else event.sent_ms
        return _Hold(until, ended, maybe_acked, maybe_released)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _account(self, stored: dict[str, set[str]], fates: dict[Place, _Fate]) -> None:
        """Every message that is stored is, in every group, in exactly one place."""
        dead, left = Counter(self._final.dead), Counter(self._final.left)
        for place, times in (dead + left).items():
            if times > 1:
                self._broken("accounting", f"{place} stands {times} times among the dead letters and what is left")
        for queue, terms in self._queues.items():
            if len(stored[queue]) != self._final.stored[queue]:
                self._broken(
                    "accounting", f"{queue} stored {self._final.stored[queue]} messages, {len(stored[queue])} are known"
                )
            for place in (Place(queue, group, token) for group in terms.groups for token in stored[queue]):
                self._account_for(place, fates.get(place, _Fate()), place in dead, place in left)

    def _account_for(self, place: Place, fate: _Fate, dead: bool, left: bool) -> None:
        if fate.acked and (dead or left):
            self._broken("accounting", f"{place} was acked and is still {'a dead letter' if dead else 'there'}")
        elif fate.dead and not dead:
            self._broken("lost", f"{place} was dead-lettered and is not among the dead letters")
        elif fate.acked:
            self._counts["ended acked"] += 1
        elif dead:
            self._counts["ended dead"] += 1
        elif left:
            self._counts["ended there"] += 1
        elif fate.maybe_acked:
            # The message is gone, and only an ack without an answer can have removed it.
            self._counts["ended acked, answer lost"] += 1
        else:
            self._broken("lost", f"{place} is neither acked nor dead nor there")


def _moment(event: Settled | Restarted) -> int:
    return event.sent_ms if isinstance(event, Settled) else event.killed_ms

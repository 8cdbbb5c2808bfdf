"""The history checker: it accepts what can be true, and finds every lie that it was made for."""

from __future__ import annotations

import pytest
from history import SLACK_MS, Delivered, Final, Place, Published, Restarted, Settled, Terms, check

ONE_GROUP = {"q": Terms(("g",), max_retries=2)}
FINAL = Final(stored={"q": 1}, logs={"q": [("a", "id-a")]}, dead=[], left=[])
STORED = Published("q", ("a",), "stored", ("id-a",))
UNKNOWN = Published("q", ("a",), "unknown")


def delivered(attempt: int = 1, at: int = 1_000, *, lease: int | None = None, **changes) -> Delivered:
    """Attempt `n` is by default handed out under lease `n`, for 500 ms."""
    lease = attempt if lease is None else lease
    given = Delivered("q", "g", "a", "id-a", f"r1.0.{lease}.ff.0", attempt, at, at + 500, 500)
    return given._replace(**changes)


def settled(kind: str, status: str, at: int, *, lease: int = 1, **more) -> Settled:
    return Settled(kind, f"r1.0.{lease}.ff.0", at, at + 1, status, **more)


def acked(at: int = 1_100, lease: int = 1) -> Settled:
    return settled("ack", "acked", at, lease=lease)


def rules(events, final: Final = FINAL, queues=ONE_GROUP) -> list[str]:
    return sorted({violation.partition(":")[0] for violation in check(events, final, queues).violations})


def with_dead(*groups: str) -> Final:
    return FINAL._replace(dead=[Place("q", group, "a") for group in groups])


# -- what can be true ---------------------------------------------------------------------------------------------

TRUE = {
    "published, delivered, acked": [STORED, delivered(), acked()],
    "the lease ran out": [STORED, delivered(), delivered(2, 1_500), acked(1_600, lease=2)],
    "nacked, and again when it was due": [
        STORED,
        delivered(),
        settled("nack", "retrying", 1_050, until_ms=1_200),
        delivered(2, 1_200),
        acked(1_300, lease=2),
    ],
    "released, and again as the same attempt": [
        STORED,
        delivered(),
        settled("release", "released", 1_050),
        delivered(1, 1_060, lease=2),
        acked(1_300, lease=2),
    ],
    "a publish without an answer that did happen": [UNKNOWN, delivered(), acked()],
    "a retried publish": [UNKNOWN, STORED, STORED, delivered(), acked()],
    "an ack without an answer that did happen": [STORED, delivered(), settled("ack", "unknown", 1_100)],
    "an ack without an answer that did not happen": [
        STORED,
        delivered(),
        settled("ack", "unknown", 1_100),
        delivered(2, 1_500),
        acked(1_600, lease=2),
    ],
    "an ack without an answer, shown again": [
        STORED,
        delivered(),
        settled("ack", "unknown", 1_100),
        settled("ack", "stale", 1_200),
    ],
    "a nack without an answer": [
        STORED,
        delivered(),
        settled("nack", "unknown", 1_100),
        delivered(2, 1_110),
        acked(1_200, lease=2),
    ],
    "extended": [
        STORED,
        delivered(),
        settled("extend", "extended", 1_400, until_ms=1_900, lease_ms=500),
        acked(1_800),
    ],
    "an extension without an answer, to less than there was": [
        STORED,
        delivered(),
        settled("extend", "unknown", 1_100, lease_ms=100),
        delivered(2, 1_200),
        acked(1_300, lease=2),
    ],
    "a receipt outlives a restart": [STORED, delivered(), Restarted(1_100, 1_900), acked(2_300)],
    "an answer that was late by more than its lease": [
        STORED,
        delivered(2, 1_600),
        delivered(1, 1_700, deadline_ms=1_500),
        acked(1_650, lease=2),
    ],
    "stale, and time was up": [
        STORED,
        delivered(),
        settled("ack", "stale", 1_500),
        delivered(2, 1_510),
        acked(1_600, lease=2),
    ],
}


@pytest.mark.parametrize("events", TRUE.values(), ids=TRUE)
def test_what_can_be_true_is_accepted(events):
    assert check(events, FINAL, ONE_GROUP).violations == []


def test_dead_letters_and_what_is_left_are_accounted_for():
    dead = [STORED, delivered(), settled("reject", "dead_lettered", 1_100)]
    assert check(dead, with_dead("g"), ONE_GROUP).violations == []
    two_groups = {"q": Terms(("g", "h"), max_retries=2)}
    left = Final({"q": 1}, {}, [Place("q", "g", "a")], [Place("q", "h", "a")])
    verdict = check(dead, left, two_groups)
    assert verdict.violations == []
    assert (verdict.counts["ended dead"], verdict.counts["ended there"]) == (1, 1)


def test_publish_without_reply_may_be_absent():
    assert check([UNKNOWN], Final({"q": 0}, {"q": []}, [], []), ONE_GROUP).violations == []


# -- what cannot --------------------------------------------------------------------------------------------------

NOTHING = Final({"q": 0}, {"q": []}, [], [])
FALSE = {
    "a promised message is nowhere": ([STORED], NOTHING, ["accounting", "lost"]),
    "a promised message is in the log, and no group ever got it": ([STORED], FINAL, ["lost"]),
    "one group got it, the other did not": (
        [STORED, delivered(), acked()],
        FINAL,
        ["lost"],
        {"q": Terms(("g", "h"), max_retries=2)},
    ),
    "acked, and delivered again": ([STORED, delivered(), acked(), delivered(2, 9_000)], FINAL, ["redelivered"]),
    "acked, then delivered again before the check": (
        [STORED, delivered(), acked(), delivered(2, 1_050)],
        FINAL,
        ["redelivered"],
    ),
    "acked, killed, and delivered again": (
        [STORED, delivered(), acked(), Restarted(1_200, 1_300), delivered(2, 9_000), acked(9_100, lease=2)],
        FINAL,
        ["acked twice", "redelivered"],
    ),
    "two at once": (
        [STORED, delivered(), delivered(2, 1_500 - SLACK_MS - 1), acked(1_600, lease=2)],
        FINAL,
        ["double lease"],
    ),
    "two at once although the first was extended": (
        [
            STORED,
            delivered(),
            settled("extend", "extended", 1_400, until_ms=1_900, lease_ms=500),
            delivered(2, 1_600),
            acked(1_700, lease=2),
        ],
        FINAL,
        ["double lease"],
    ),
    "two at once after a restart": (
        [STORED, delivered(), Restarted(1_100, 1_200), delivered(2, 1_300), acked(1_400, lease=2)],
        FINAL,
        ["double lease"],
    ),
    "a restart that did not start the lease over": (
        [STORED, delivered(), Restarted(1_100, 2_000), delivered(2, 2_300), acked(2_400, lease=2)],
        FINAL,
        ["double lease"],
    ),
    "two at once while an ack had no answer": (
        [STORED, delivered(), settled("ack", "unknown", 1_100), delivered(2, 1_200), acked(1_300, lease=2)],
        FINAL,
        ["double lease"],
    ),
    "both receipts worked": (
        [STORED, delivered(), delivered(2, 1_600), acked(1_700, lease=2), acked(1_800)],
        FINAL,
        ["acked twice", "redelivered"],
    ),
    "one receipt worked twice": ([STORED, delivered(), acked(), acked(1_200)], FINAL, ["settled twice"]),
    "a retry before it was due": (
        [
            STORED,
            delivered(),
            settled("nack", "retrying", 1_050, until_ms=1_400),
            delivered(2, 1_300),
            acked(1_350, lease=2),
        ],
        FINAL,
        ["double lease"],
    ),
    "the same attempt again without a release": (
        [STORED, delivered(), delivered(1, 1_600, lease=2), acked(1_700, lease=2)],
        FINAL,
        ["attempt repeated"],
    ),
    "a lease that ended before its time": (
        [STORED, delivered(), settled("ack", "stale", 1_200), delivered(2, 1_600), acked(1_700, lease=2)],
        FINAL,
        ["stale too early"],
    ),
    "a receipt that did not survive a restart": (
        [
            STORED,
            delivered(),
            Restarted(1_100, 1_200),
            settled("ack", "stale", 1_300),
            delivered(2, 1_800),
            acked(1_900, lease=2),
        ],
        FINAL,
        ["stale too early"],
    ),
    "a retried publish was stored twice, as the answers say": (
        [UNKNOWN, STORED, STORED._replace(ids=("id-b",)), delivered(), acked()],
        FINAL,
        ["duplicate"],
    ),
    "a retried publish was stored twice, as a consumer says": (
        [UNKNOWN, STORED, delivered(id="id-b"), acked()],
        FINAL,
        ["duplicate"],
    ),
    "a retried publish was stored twice, as the log says": (
        [UNKNOWN, STORED, delivered(), acked()],
        Final({"q": 2}, {"q": [("a", "id-a"), ("a", "id-b")]}, [], []),
        ["accounting", "duplicate"],
    ),
    "a refused publish was stored": ([STORED._replace(outcome="refused"), delivered(), acked()], FINAL, ["phantom"]),
    "a message that was not published": ([delivered(), acked()], FINAL, ["phantom"]),
    "another payload": ([STORED, delivered(intact=False), acked()], FINAL, ["altered"]),
    "before its time": ([STORED._replace(due_ms=1_000 + SLACK_MS + 1), delivered(), acked()], FINAL, ["early"]),
    "once too often": (
        [STORED, delivered(1), delivered(2, 2_000), delivered(3, 3_000), delivered(4, 4_000), acked(4_100, lease=4)],
        FINAL,
        ["over budget"],
    ),
    "a dead letter is lost": ([STORED, delivered(), settled("reject", "dead_lettered", 1_100)], FINAL, ["lost"]),
    "a dead letter is delivered": (
        [STORED, delivered(), settled("reject", "dead_lettered", 1_100), delivered(2, 2_000)],
        with_dead("g"),
        ["redelivered"],
    ),
    "acked, and a dead letter": ([STORED, delivered(), acked()], with_dead("g"), ["accounting"]),
    "acked, and still there": (
        [STORED, delivered(), acked()],
        FINAL._replace(left=[Place("q", "g", "a")]),
        ["accounting"],
    ),
    "a dead letter in two places": (
        [STORED, delivered(), settled("reject", "dead_lettered", 1_100)],
        with_dead("g", "g"),
        ["accounting"],
    ),
    "more was stored than was published": (
        [STORED, delivered(), acked()],
        FINAL._replace(stored={"q": 2}),
        ["accounting"],
    ),
}


@pytest.mark.parametrize("case", FALSE.values(), ids=FALSE)
def test_what_cannot_be_true_is_flagged(case):
    events, final, expected, *queues = case
    assert rules(events, final, *queues) == expected

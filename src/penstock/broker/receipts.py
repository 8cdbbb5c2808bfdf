"""Receipts <-> claims. A batch of receipts of one lease becomes one claim, so that acks are ranges all the way down."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.commands import Claim, Outcome
from penstock.ids import parse_offsets, parse_receipt_prefix
from penstock.wire.delivery import Alike, Settled

_FORGED = Claim(0, 0, 0, 1)
"""No lease has number 0, so this is stale like any other."""

_DIGITS_MAX = 18


class Claims:
    """The claims that a list of receipts makes, and the way back from outcomes to one result per receipt."""

    def __init__(self, receipts: Sequence[str]):
        self.claims: list[Claim] = []
        self._texts: list[Sequence[str]] = []
        """Per claim: its receipts in order; a single one may be a range."""
        whole = _whole_lease(receipts)
        self._is_whole = whole is not None
        if whole is not None:
            self.claims.append(whole)
            self._texts.append(receipts)
            return
        for text in receipts:
            cut = text.rfind(".") + 1
            parsed, offsets = parse_receipt_prefix(text[: cut - 1] if cut else ""), parse_offsets(text[cut:])
            if parsed is None or offsets is None:
                self.claims.append(_FORGED)
            else:
                self.claims.append(Claim(parsed[1], parsed[2], offsets[0], offsets[1] + 1))
            self._texts.append([text])

    def results(self, outcomes: list[list[Outcome]]) -> Sequence[Settled]:
        if self._is_whole and len(outcomes[0]) == 1:
            return Alike(self._texts[0], outcomes[0][0].status, *_times(outcomes[0][0]))
        results: list[Settled] = []
        for texts, claim, parts in zip(self._texts, self.claims, outcomes, strict=True):
            for part in parts:
                due, deadline = _times(part)
                if len(texts) == claim.stop - claim.first:
                    named = texts[part.first - claim.first : part.stop - claim.first]
                elif len(parts) == 1:
                    named = texts
                else:
                    prefix = texts[0][: texts[0].rfind(".") + 1]
                    named = [f"{prefix}{part.first}-{part.stop - 1}"]
                results += [Settled(text, part.status, due, deadline) for text in named]
        return results


def _times(outcome: Outcome) -> tuple[int | None, int | None]:
    """(due_at_ms, deadline_at_ms): the one that the status is about."""
    return (None, outcome.at) if outcome.status == "extended" else (outcome.at, None)


def _whole_lease(receipts: Sequence[str]) -> Claim | None:
    """The claim of receipts that count up within one lease: what a consumer that acks its batch sends.

    Told by writing down what such receipts look like and comparing. Anything else is None, and looked at one by one.
    """
    if len(receipts) < 2:
        return None
    cut = receipts[0].rfind(".") + 1
    prefix, tail = receipts[0][:cut], receipts[0][cut:]
    parsed = parse_receipt_prefix(prefix[:-1])
    if parsed is None or not (tail.isascii() and tail.isdigit()) or len(tail) > _DIGITS_MAX:
        return None
    first, stop = int(tail), int(tail) + len(receipts)
    if receipts[-1] != f"{prefix}{stop - 1}":
        return None
    # As one text each: there are as many line breaks on the right as parts, so none can hide inside a receipt.
    if "\n".join(receipts) != prefix + f"\n{prefix}".join(map(str, range(first, stop))):
        return None
    return Claim(parsed[1], parsed[2], first, stop)

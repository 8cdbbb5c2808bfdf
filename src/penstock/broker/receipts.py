"""Receipts <-> claims. A batch of receipts of one lease becomes one claim, so that acks are ranges all the way down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import sub

import msgspec

from penstock.core.commands import Claim, Outcome
from penstock.ids import parse_offsets, parse_receipt_prefix
from penstock.wire.delivery import Settled, UniformResults

_FORGED = Claim(0, 0, 0, 1)
"""No lease has number 0, so this is stale like any other."""

_DIGITS_MAX = 18
_decode = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.Encoder().encode


class Claims:
    """The claims that a list of receipts makes, and the way back from outcomes to one result per receipt.

    A receipt of another shard is as stale here as one that was made up.
    """

    def __init__(self, receipts: Sequence[str], shard: int = 0):
        self.claims: list[Claim] = []
        self._texts: list[Sequence[str]] = []
        """Per claim: its receipts in order; a single one may be a range."""
        numbers = _of_one_lease(receipts, shard)
        self._plain = receipts if numbers is not None else None
        """All of them, if they are known to be made of letters, digits and dots."""
        if numbers is not None:
            self._claim_runs(receipts, numbers)
            return
        run: list[str] = []
        prefix, following = "", -1
        known, parsed = "", None
        for text in receipts:
            if following >= 0 and text == f"{prefix}{following}":
                # The next of the same lease: one claim for both.
                following += 1
                run.append(text)
                continue
            cut = text.rfind(".") + 1
            if text[:cut] != known:
                known = text[:cut]
                parsed = parse_receipt_prefix(known[:-1])
            offsets = parse_offsets(text[cut:])
            following = -1
            if parsed is None or offsets is None or parsed[0] != shard:
                self.claims.append(_FORGED)
            else:
                self.claims.append(Claim(parsed[1], parsed[2], offsets[0], offsets[1] + 1))
                if offsets[0] == offsets[1]:
                    prefix, following = text[:cut], offsets[1] + 1
            run = [text]
            self._texts.append(run)
        self.claims = [
            claim if len(texts) == 1 else claim._replace(stop=claim.first + len(texts))
            for claim, texts in zip(self.claims, self._texts, strict=True)
        ]

    def _claim_runs(self, receipts: Sequence[str], numbers: list[int]) -> None:
        """One claim for each stretch that counts up: what was skipped or failed in between is not among them."""
        prefix = parse_receipt_prefix(receipts[0][: receipts[0].rfind(".")])
        assert prefix is not None
        _, lease, nonce = prefix
        ends = [at for at, step in enumerate(map(sub, numbers[1:], numbers), 1) if step != 1]
        for begin, end in pairwise((0, *ends, len(numbers))):
            self.claims.append(Claim(lease, nonce, numbers[begin], numbers[end - 1] + 1))
            self._texts.append(receipts[begin:end])

    def results(self, outcomes: list[list[Outcome]]) -> Sequence[Settled]:
        if self._plain is not None:
            one = outcomes[0][0]
            if all(len(parts) == 1 and parts[0][2:] == one[2:] for parts in outcomes):
                return UniformResults(self._plain, one.status, *_times(one))
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


def _of_one_lease(receipts: Sequence[str], shard: int) -> list[int] | None:
    """The offsets of receipts that are each one message of the same lease of this shard: a consumer's whole batch.

    All are read at once, as an array, and written again: only what is then the same, byte by byte, was such receipts.
    Anything else is None, and looked at one by one.
    """
    if len(receipts) < 2:
        return None
    cut = receipts[0].rfind(".") + 1
    prefix = receipts[0][:cut]
    parsed = parse_receipt_prefix(prefix[:-1])
    if parsed is None or parsed[0] != shard:
        return None
    try:
        # A line break stays in the text wherever a receipt does not begin like the first one.
        inside = "\n".join(receipts)[cut:].replace(f"\n{prefix}", ",")
        text = f"[{inside}]".encode()
        numbers = _decode(text)
    except (msgspec.DecodeError, ValueError):
        return None
    if len(numbers) != len(receipts) or _encode(numbers) != text:
        return None
    return numbers if min(numbers) >= 0 and max(numbers) < 10**_DIGITS_MAX else None

"""Receipts <-> claims. A batch of receipts of one lease becomes one claim, so that acks are ranges all the way down."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.commands import Claim, Outcome
from penstock.ids import parse_offsets, parse_receipt_prefix
from penstock.wire.delivery import Settled

_FORGED = Claim(0, 0, 0, 1)
"""No lease has number 0, so this is stale like any other."""


class Claims:
    """The claims that a list of receipts makes, and the way back from outcomes to one result per receipt."""

    def __init__(self, receipts: Sequence[str]):
        self.claims: list[Claim] = []
        self._texts: list[list[str]] = []
        """Per claim: its receipts in order; a single one may be a range."""
        prefix, parsed = "", None
        # The claim under construction: offsets `first` to `stop` of one lease, one receipt each.
        first = stop = 0
        texts: list[str] = []
        for text in receipts:
            cut = text.rfind(".") + 1
            tail = text[cut:]
            if text[:cut] != prefix or not texts:
                self._close(parsed, first, stop, texts)
                prefix, texts = text[:cut], []
                parsed = parse_receipt_prefix(prefix[:-1])
            offsets = parse_offsets(tail)
            if parsed is None or offsets is None:
                self._close(parsed, first, stop, texts)
                texts = []
                self.claims.append(_FORGED)
                self._texts.append([text])
            elif texts and offsets == (stop, stop):
                texts.append(text)
                stop += 1
            else:
                self._close(parsed, first, stop, texts)
                first, stop = offsets[0], offsets[1] + 1
                texts = [text]
                if offsets[0] != offsets[1]:
                    self._close(parsed, first, stop, texts)
                    texts = []
        self._close(parsed, first, stop, texts)

    def _close(self, parsed: tuple[int, int, int] | None, first: int, stop: int, texts: list[str]) -> None:
        if texts:
            assert parsed is not None
            self.claims.append(Claim(parsed[1], parsed[2], first, stop))
            self._texts.append(texts)

    def results(self, outcomes: list[list[Outcome]]) -> list[Settled]:
        results: list[Settled] = []
        for texts, claim, parts in zip(self._texts, self.claims, outcomes, strict=True):
            for part in parts:
                due, deadline = (None, part.at) if part.status == "extended" else (part.at, None)
                if len(texts) == claim.stop - claim.first:
                    named = texts[part.first - claim.first : part.stop - claim.first]
                elif len(parts) == 1:
                    named = texts
                else:
                    prefix = texts[0][: texts[0].rfind(".") + 1]
                    named = [f"{prefix}{part.first}-{part.stop - 1}"]
                results += [Settled(text, part.status, due, deadline) for text in named]
        return results

"""Input is parsed in slices, and a connection that sends many small units gives others their turn."""

from __future__ import annotations

import asyncio

import pytest

from penstock.transports.input_pacer import SLICE_BYTES_MAX, UNITS_PER_TURN, InputPacer, Parsed


class Parser:
    """Each byte `x` is a request, each `o` a unit of overhead; counts the units by turn of the event loop."""

    def __init__(self) -> None:
        self.parsed = b""
        self.turns: list[int] = [0]
        self.changes = 0
        self.pacer = InputPacer(self.parse, self.changed, asyncio.get_running_loop())

    def parse(self, data: bytes) -> Parsed:
        self.parsed += data
        requests = data.count(b"x")
        units = requests + data.count(b"o")
        self.turns[-1] += units
        return Parsed(units, requests)

    def changed(self) -> None:
        self.changes += 1

    async def run(self) -> None:
        while not self.pacer.is_empty:
            self.turns.append(0)
            await asyncio.sleep(0)


def test_ordinary_input_is_parsed_whole_and_at_once():
    async def run() -> None:
        parser = Parser()
        for _ in range(20):
            parser.pacer.receive(b"." * 15_000 + b"x")
            assert parser.pacer.is_empty
        parser.pacer.receive(b"." * SLICE_BYTES_MAX)
        assert parser.pacer.is_empty
        assert len(parser.parsed) == 20 * 15_001 + SLICE_BYTES_MAX
        assert parser.changes == 0, "the connection need not pause and resume reading"

    asyncio.run(run())


def test_input_is_empty_for_the_requests_of_its_last_slice():
    """A connection that is asked whether to pause reading, in the middle of a request, reads on."""

    async def run() -> None:
        seen = []

        def parse(data: bytes) -> Parsed:
            seen.append(pacer.is_empty)
            pacer.hold(False)
            return Parsed(1, 1)

        pacer = InputPacer(parse, lambda: None, asyncio.get_running_loop())
        pacer.receive(b"x")
        assert seen == [True] and pacer._scheduled is None

    asyncio.run(run())


def test_many_small_units_are_spread_over_turns_of_the_event_loop():
    async def run() -> None:
        parser = Parser()
        parser.pacer.receive(b"x" * 200_000)
        assert not parser.pacer.is_empty
        await parser.run()
        assert parser.parsed == b"x" * 200_000
        # The first slice is large; then the pacer knows what this connection sends.
        assert max(parser.turns[1:]) <= 8 * UNITS_PER_TURN
        assert parser.changes == 2

    asyncio.run(run())


def test_overhead_is_parsed_with_pauses():
    async def run() -> None:
        parser = Parser()
        loop, pauses = asyncio.get_running_loop(), []
        call_later = loop.call_later
        loop.call_later = lambda pause_s, *more: pauses.append(pause_s) or call_later(0, *more)
        parser.pacer.receive(b"o" * 30_000)
        await parser.run()
        assert parser.parsed == b"o" * 30_000
        assert pauses and all(pause_s > 0 for pause_s in pauses)
        pauses.clear()
        parser.pacer.receive(b"x" * 30_000)
        await parser.run()
        assert not pauses, "requests are work, not overhead"

    asyncio.run(run())


def test_input_that_arrives_meanwhile_stays_in_order():
    async def run() -> None:
        parser = Parser()
        sent = b""
        for number in range(50):
            data = bytes([number]) + b"x" * 3_000
            parser.pacer.receive(data)
            sent += data
            await asyncio.sleep(0)
        await parser.run()
        assert parser.parsed == sent

    asyncio.run(run())


def test_held_input_is_not_parsed_before_it_is_released():
    async def run() -> None:
        parser = Parser()
        parser.pacer.hold(True)
        parser.pacer.receive(b"abc")
        await asyncio.sleep(0)
        assert (parser.parsed, parser.pacer.is_empty) == (b"", False)
        parser.pacer.hold(False)
        await parser.run()
        assert parser.parsed == b"abc"

    asyncio.run(run())


@pytest.mark.parametrize("ending", ["clear", "close", "take"])
def test_the_connection_may_end_inside_a_slice(ending):
    async def run() -> None:
        taken = []

        def parse(data: bytes) -> Parsed:
            taken.append(getattr(pacer, ending)())
            return Parsed(len(data), 0)

        pacer = InputPacer(parse, lambda: None, asyncio.get_running_loop())
        pacer.receive(b"x" * 100_000)
        await asyncio.sleep(0)
        assert len(taken) == 1 and pacer.is_empty
        if ending == "take":
            assert len(taken[0]) == 100_000 - 16 * 1024

    asyncio.run(run())

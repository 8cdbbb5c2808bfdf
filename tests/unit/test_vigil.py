"""The event loop stays awake behind an answer, for as long as it was told, and for callers who come back."""

from __future__ import annotations

import asyncio

from penstock.transports.http.vigil import SKIPPED_MAX, Vigil

WAIT_US = 200


class Watch:
    """A vigil with a clock of its own; counts how often the loop was kept from sleeping."""

    def __init__(self, wait_us: int = WAIT_US):
        self.now = 100.0
        self.looks = 0
        self.vigil = Vigil(self._look, wait_us)

    def _look(self) -> float:
        self.looks += 1
        return self.now

    async def is_awake(self) -> bool:
        before = self.looks
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.looks > before


def run(story):
    asyncio.run(story())


def test_it_is_awake_behind_an_answer_until_the_time_is_over():
    async def story():
        watch = Watch()
        assert not await watch.is_awake()
        watch.vigil.answered()
        assert await watch.is_awake()
        watch.now += 0.9 * WAIT_US / 1e6
        assert await watch.is_awake()
        watch.now += 0.2 * WAIT_US / 1e6
        await asyncio.sleep(0)
        assert not await watch.is_awake()

    run(story)


def test_a_request_ends_it_and_the_next_answer_begins_it_again():
    async def story():
        watch = Watch()
        for _ in range(3):
            watch.vigil.answered()
            assert await watch.is_awake()
            watch.vigil.asked()
            assert not await watch.is_awake()
            watch.now += 1
            assert not await watch.is_awake()

    run(story)


def test_a_request_that_is_answered_at_once_goes_on_with_the_same_watch():
    async def story():
        watch = Watch()
        for _ in range(5):
            watch.vigil.answered()
            watch.now += 0.9 * WAIT_US / 1e6
            watch.vigil.asked()
        watch.vigil.answered()
        assert await watch.is_awake()
        before = watch.looks
        await asyncio.sleep(0)
        assert watch.looks == before + 1, "one look a turn, however many answers there were"

    run(story)


def test_who_does_not_come_back_is_waited_for_ever_more_rarely():
    async def answers_without(watch: Watch) -> int:
        """After a vain wait."""
        watch.now += 1
        await watch.is_awake()
        count = 0
        while True:
            watch.vigil.asked()
            watch.vigil.answered()
            if await watch.is_awake():
                return count
            count += 1

    async def story():
        watch = Watch()
        watch.vigil.answered()
        assert [await answers_without(watch) for _ in range(8)] == [1, 2, 4, 8, 16, 32, SKIPPED_MAX, SKIPPED_MAX]
        watch.vigil.asked()
        watch.vigil.answered()
        assert await answers_without(watch) == 1, "somebody came back in time"

    run(story)


def test_zero_is_never():
    async def story():
        watch = Watch(0)
        for _ in range(3 * SKIPPED_MAX):
            watch.vigil.answered()
            assert not await watch.is_awake()
        assert not watch.looks

    run(story)

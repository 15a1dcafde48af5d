"""The work queue in virtual time: each key once, soonest first, one worker per key."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from hostler.kube.controller import Controller
from hostler.kube.metrics import Metrics
from hostler.kube.queue import Queue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ready(queue: Queue) -> list[str]:
    """Everything due now, in the order it is given out; each is done at once."""

    async def take() -> list[str]:
        found: list[str] = []
        while len(queue):
            key = await queue.get()
            assert key is not None
            found.append(key)
            queue.done(key)
        return found

    return asyncio.run(take())


def test_a_key_added_ten_times_is_given_out_once() -> None:
    queue = Queue(clock=Clock())
    for _ in range(10):
        queue.add("a")
    assert ready(queue) == ["a"]


def test_urgent_keys_come_first_and_equal_ones_in_order_of_arrival() -> None:
    queue = Queue(clock=Clock())
    for key, priority in (("later", 2), ("first", 1), ("second", 1), ("now", 0)):
        queue.add(key, priority=priority)
    queue.add("later", priority=0)
    assert ready(queue) == ["now", "later", "first", "second"]


def test_the_earliest_deadline_wins() -> None:
    clock = Clock()
    queue = Queue(clock=clock)
    queue.add("a", after=10)
    queue.add("a", after=3)
    queue.add("a", after=7)
    assert ready(queue) == []
    clock.now += 3
    assert ready(queue) == ["a"]
    clock.now += 100
    assert ready(queue) == []


def test_a_key_added_while_in_work_comes_back_after_done_and_never_twice_at_once() -> None:
    async def story() -> None:
        queue = Queue(clock=Clock())
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert len(queue) == 1

    asyncio.run(story())


def test_back_off_doubles_per_key_is_bounded_and_is_forgotten_after_success() -> None:
    queue = Queue(clock=Clock(), jitter=lambda: 0.5, first=1.0, most=10.0)
    assert [queue.retry("a") for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert queue.retry("b") == 1.0
    queue.forget("a")
    assert queue.retry("a") == 1.0


def test_closing_lets_every_waiting_worker_go() -> None:
    async def story() -> list[str | None]:
        queue = Queue()
        workers = [asyncio.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.close()
        return await asyncio.gather(*workers)

    assert asyncio.run(story()) == [None, None, None]


def test_deadlines_that_were_overtaken_do_not_pile_up() -> None:
    """A key that changes every second and each time asks to be looked at in an hour."""
    clock = Clock()
    queue = Queue(clock=clock)
    queue.add("quiet", after=7200)
    for _ in range(5000):
        clock.now += 1
        queue.add("busy")
        assert ready(queue) == ["busy"]
        queue.add("busy", after=3600)
    assert len(queue._later) < 1100
    clock.now += 3600
    assert sorted(ready(queue)) == ["busy", "quiet"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=30))
def test_nothing_added_is_ever_lost(adds: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    queue = Queue(clock=clock)
    for key, after, priority in adds:
        queue.add(key, after=after, priority=priority)
    met: list[str] = []
    for _ in range(6):
        met += ready(queue)
        clock.now += 1
    assert sorted(met) == sorted({key for key, _, _ in adds})


def test_a_key_that_wakes_itself_for_ever_does_not_stop_everything_else() -> None:
    """Its looks wait for nothing; the lease is to be renewed all the same."""
    looks, many = 0, 500_000

    async def again(key: str) -> float | None:
        nonlocal looks
        looks += 1
        if looks < many:
            controller.queue.add(key)
        return None

    controller = Controller("nodes", again, metrics=Metrics(), workers=2)

    async def story() -> None:
        controller.queue.add("a")
        working = asyncio.create_task(controller.run())
        for _ in range(5):
            await asyncio.sleep(0)
        controller.stop()
        await working

    asyncio.run(story())
    assert 1 < looks < many, "nobody else got a turn"

"""The write budget, on a clock of the test's own."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from hostler.kube.budget import LOWEST, WriteBudget
from hostler.kube.errors import LONGEST_WAIT


class Time:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def budget(time: Time, rate: float = 10.0, burst: int = 5) -> WriteBudget:
    return WriteBudget(rate, burst, clock=time, sleep=time.sleep)


def seconds_for(time: Time, it: WriteBudget, writes: int) -> float:
    async def go() -> float:
        before = time.now
        for _ in range(writes):
            await it.take()
        return time.now - before

    return asyncio.run(go())


def test_a_burst_is_free_and_then_the_rate_holds() -> None:
    time = Time()
    it = budget(time)
    assert seconds_for(time, it, 5) == 0
    assert round(seconds_for(time, it, 20), 3) == 2.0


def test_429_halves_the_rate_and_the_pause_asked_for_is_kept() -> None:
    time = Time()
    it = budget(time)
    it.throttled(7)
    assert it.rate == 5
    before = time.now
    seconds_for(time, it, 1)
    assert time.now - before >= 7, "nobody writes while the server asked for rest"
    assert seconds_for(time, it, 10) >= 1.99, "and no burst was saved up meanwhile"


def test_many_429_at_once_are_one_message() -> None:
    time = Time()
    it = budget(time)
    for _ in range(10):
        it.throttled(None)
    assert it.rate == 5
    time.now += 2
    it.throttled(None)
    assert it.rate == 2.5


def test_it_never_stops_writing_for_good() -> None:
    time = Time()
    it = budget(time)
    for _ in range(50):
        time.now += 2
        it.throttled(None)
    assert it.rate == LOWEST
    it.throttled(10**9)
    assert seconds_for(time, it, 1) <= LONGEST_WAIT + 1 / LOWEST


def test_it_recovers_slowly_while_writes_succeed() -> None:
    time = Time()
    it = budget(time)
    it.throttled(None)
    time.now += 1
    it.succeeded()
    assert it.rate == 5.5  # a twentieth of the full rate per second
    for _ in range(100):
        time.now += 1
        it.succeeded()
    assert it.rate == it.full


def test_its_rate_is_told() -> None:
    told: list[float] = []
    time = Time()
    it = WriteBudget(8, 1, clock=time, sleep=time.sleep, changed=told.append)
    it.throttled(None)
    assert told == [8, 4]


def test_who_came_first_is_served_first() -> None:
    time = Time()
    it = budget(time, rate=1, burst=1)
    served: list[int] = []

    async def one(number: int) -> None:
        await it.take()
        served.append(number)

    async def go() -> None:
        await asyncio.gather(*(one(number) for number in range(20)))

    asyncio.run(go())
    assert served == list(range(20))


def test_one_who_gives_up_does_not_hold_up_the_rest() -> None:
    time = Time()
    it = WriteBudget(1000, 1)

    async def go() -> None:
        await it.take()
        waiting = asyncio.create_task(it.take())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await it.take()

    asyncio.run(asyncio.wait_for(go(), 10))
    assert time.now == 1000.0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 100)),
        st.tuples(st.just("429"), st.one_of(st.none(), st.floats(-5, 1e6))),
        st.tuples(st.just("ok"), st.just(0.0)),
        st.tuples(st.just("take"), st.just(0.0)),
    ),
    max_size=40,
)


@given(steps)
def test_whatever_happens_the_rate_stays_in_its_bounds_and_writes_go_on(story: list[tuple[str, float | None]]) -> None:
    time = Time()
    it = budget(time)

    async def go() -> None:
        for what, value in story:
            match what:
                case "wait":
                    time.now += value or 0
                case "429":
                    it.throttled(value)
                case "ok":
                    it.succeeded()
                case "take":
                    before = time.now
                    await it.take()
                    assert time.now - before <= LONGEST_WAIT + 2 / LOWEST
            assert LOWEST <= it.rate <= it.full

    asyncio.run(go())

"""A clock that is set while we run: noticed, said, and never a reason to be early."""

from __future__ import annotations

import asyncio
import time

from hostler.kube.clock import LOOK_SECONDS, STEP_SECONDS, Steps

NOON = 1_700_000_000.0


class Machine:
    """Its wall clock and the time that really passes."""

    def __init__(self) -> None:
        self.wall, self.ticks = NOON, 100.0
        self.told: list[float] = []
        self.steps = Steps(self.told.append, wall=lambda: self.wall, ticks=lambda: self.ticks)

    def passes(self, seconds: float, *, set_by: float = 0.0) -> float:
        self.wall += seconds + set_by
        self.ticks += seconds
        return self.steps.last(self.wall)


def test_a_clock_that_only_goes_was_never_set() -> None:
    machine = Machine()
    for seconds in (0.0, 1.0, 3600.0, 86_400.0):
        assert machine.passes(seconds) == 0.0
    assert machine.told == []


def test_what_a_clock_is_corrected_by_all_the_time_is_no_step() -> None:
    machine = Machine()
    for _ in range(1000):
        assert machine.passes(LOOK_SECONDS, set_by=0.01) == 0.0
    assert machine.told == []


def test_a_step_forward_is_known_from_then_on() -> None:
    machine = Machine()
    assert machine.passes(2.0, set_by=3600.0) == machine.wall == NOON + 3602
    assert machine.passes(50.0) == NOON + 3602, "when it was, not now"
    assert machine.passes(1.0, set_by=STEP_SECONDS + 1) == machine.wall, "and the next one"
    assert machine.told == [3600.0, STEP_SECONDS + 1]


def test_nothing_is_later_than_now() -> None:
    """Whoever looked at the clock a moment before the step; and a clock that is set back again."""
    machine = Machine()
    before = machine.wall
    machine.passes(1.0, set_by=3600.0)
    assert machine.steps.last(before) == before
    assert machine.passes(1.0, set_by=-3600.0) == machine.wall
    assert machine.told == [3600.0, -3600.0]


def test_a_clock_set_back_is_said_and_makes_nobody_early() -> None:
    machine = Machine()
    assert machine.passes(10.0, set_by=-7200.0) == 0.0
    assert machine.told == [-7200.0]


def test_a_process_that_was_stopped_is_no_clock_that_was_set() -> None:
    """SIGSTOP between the two looks: they are not of one moment, and say nothing of each other."""
    ticks = iter([100.0, 101.0, 101.0 + 600.0, 702.0, 702.0])
    walls = iter([NOON, NOON + 1, NOON + 602])
    told: list[float] = []
    steps = Steps(told.append, wall=lambda: next(walls), ticks=lambda: next(ticks))
    assert steps.last(NOON + 601) == 0.0
    assert steps.last(NOON + 602) == 0.0
    assert told == []


def test_it_looks_by_itself() -> None:
    machine = Machine()

    async def go() -> None:
        task = asyncio.create_task(machine.steps.run())
        machine.wall += 60.0
        end = time.monotonic() + 60
        while not machine.told and time.monotonic() < end:
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(go())
    assert machine.told == [60.0]

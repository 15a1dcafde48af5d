"""Leader election by a Lease, and the right to act that comes with it. What is decided is in `kube.election`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
import structlog

from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.election import (
    NEVER,
    Create,
    Done,
    Look,
    Release,
    Renew,
    Take,
    Timing,
    View,
    Wait,
    Write,
    decide_lease,
    let_go,
    looked,
    unsure,
    wrote,
)
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.lease_object import LeaseObject
from hostler.kube.replica import Told, new_identity

log = structlog.get_logger("hostler.lease")


@dataclass(frozen=True, slots=True)
class Exit:
    """A hand-over under way. What was begun may finish until `deadline`; `refrain` is None when it is for good."""

    deadline: float
    refrain: float | None


class Leadership:
    """One candidate for one Lease. Run `run()` as a task; ask `held()` or `gate()` before every act.

    `held()` turns false by the clock alone, before any other replica can take the lease: also when this process was
    stopped or its machine suspended, and without any answer from the API server.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        *,
        identity: str = "",
        timing: Timing | None = None,
        annotations: Mapping[str, str] | None = None,
        told: Told | None = None,
        clock: Clock = boottime,
        wall: Clock = time.time,
    ) -> None:
        self.identity = identity or new_identity()
        self._timing = timing or Timing()
        if (complaint := self._timing.complaint()) is not None:
            raise complaint
        self._object = LeaseObject(client, name, namespace, self.identity, self._timing.duration, annotations or {})
        self._lease = str(self._object)
        self._clock, self._wall = clock, wall
        self._view = View(self._timing)
        # A second opinion: a virtual machine that was paused may find its boot clock stopped but its wall clock set
        # right by the hypervisor. A wall clock that merely jumps costs one renewal.
        self._wall_until = NEVER
        self._exit: Exit | None = None
        self._running = False
        self._released = False
        self._begun = 0
        self._said = ""
        self._was_held = False
        self._listeners: list[Told] = [told] if told else []
        self._wake, self._gained, self._lost, self._left = (asyncio.Event() for _ in range(4))
        self._lost.set()

    # -- asking

    def held(self) -> bool:
        """May we act right now?"""
        return self._view.held(self._clock()) and self._wall() < self._wall_until

    def gate(self) -> str | None:
        """None while we lead; else a sentence why nothing may be written."""
        if self.held():
            return None
        return f"this replica does not lead: {self._standing()}"

    def may_begin(self) -> str | None:
        """As `gate`, but already closed while a hand-over waits for what was begun to finish."""
        if self._exit is not None:
            return "this replica is handing over its lease and begins nothing new"
        return self.gate()

    @property
    def token(self) -> int | None:
        """The fence token: grows with every change of leader; None while we do not lead."""
        return self._view.highest if self.held() else None

    @property
    def holder(self) -> str:
        """The identity in the lease as last seen; "" if there is none."""
        return self._view.holder

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Around one piece of work: a hand-over waits for it, and none begins during a hand-over."""
        if (why := self.may_begin()) is not None:
            raise WriteRefused(why)
        self._begun += 1
        try:
            yield
        finally:
            self._begun -= 1
            if not self._begun:
                self._wake.set()

    def listen(self, told: Told) -> None:
        """Call `told(True)` when we begin to lead and `told(False)` when we no longer do."""
        self._listeners.append(told)

    async def until_held(self) -> None:
        await self._gained.wait()

    async def until_lost(self) -> None:
        await self._lost.wait()

    # -- leaving

    async def stop(self, within: float = 20.0) -> bool:
        """Leave for good: let what was begun finish, then release. True if the successor can start at once."""
        return await self._leave(Exit(self._clock() + within, None))

    async def yield_to_others(self, seconds: float, within: float = 20.0) -> bool:
        """Hand the lease over and do not take it back for `seconds`, or for good if another replica has it then.

        False if something begun did not finish in time: then the lease is kept and nothing has changed.
        """
        return await self._leave(Exit(self._clock() + within, seconds))

    async def _leave(self, exit_: Exit) -> bool:
        if not self._running:
            return self._released
        if self._exit is None or exit_.refrain is None:
            self._exit = exit_
            self._left.clear()
            self._released = False
        self._wake.set()
        await self._left.wait()
        return self._released

    # -- the loop

    async def run(self) -> None:
        """Campaign, lead, renew; returns after `stop()`. Cancelled, it leaves the lease to run out."""
        self._running = True
        try:
            while True:
                pause = await self._step()
                self._notice()
                if pause is None:
                    return
                await self._sleep(pause)
        finally:
            self._running = False
            self._view = let_go(self._view)
            self._exit = self._exit or Exit(NEVER, None)
            self._notice()
            self._left.set()

    async def _step(self) -> float | None:
        """One decision and its deed; how long to sleep then, or None at the end."""
        now = self._clock()
        self._view = replace(self._view, leaving=self._exit is not None, busy=self._begun > 0)
        if self._exit is not None and now >= self._exit.deadline:
            return self._give_up_leaving()
        action = decide_lease(self._view, self.identity, now)
        match action:
            case Look():
                return 0.0 if await self._look() else self._retry()
            case Wait():
                self._view = unsure(self._view)  # it may change while we sleep
                return min(self._retry(), max(0.0, action.until - now) + 0.05)
            case Done():
                ours = self._view.holder == self.identity
                return self._finish_leaving(released=not ours, ours=ours)
            case Release():
                self._view = let_go(self._view)
                self._notice()
                done = await self._write(action)
                if not done and self._exit is not None and self._clock() < self._exit.deadline:
                    return self._retry() / 4
                return self._finish_leaving(released=done)
            case Create() | Take() | Renew():
                if not await self._write(action):
                    return self._retry() / 2
                return self._retry()

    def _give_up_leaving(self) -> float | None:
        """Too late. Stopping: let the lease expire, so that no other replica starts while work is under way."""
        stopping = self._exit is not None and self._exit.refrain is None
        why = f"{self._begun} pieces of work did not finish in time" if self._begun else "the API server did not answer"
        log.warning("lease not released", lease=self._lease, me=self.identity, why=why)
        if not stopping:
            self._exit = None
            self._left.set()
            return 0.0
        self._view = let_go(self._view)
        return None

    def _finish_leaving(self, *, released: bool, ours: bool = True) -> float | None:
        refrain = self._exit.refrain if self._exit else None
        self._released = released
        if ours:
            log.info("lease released" if released else "lease left to run out", lease=self._lease, me=self.identity)
        if refrain is None:
            return None
        self._view = replace(unsure(self._view), refrain_until=self._clock() + refrain, leaving=False)
        self._exit = None
        self._left.set()
        return self._retry()

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(self._patience()):
                lease = await self._object.read()
        except (ApiError, Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            self._say_trouble("read", error)
            return False
        before, self._view = self._view.holder, looked(self._view, lease, self.identity, self._clock())
        if self._view.holder not in ("", before, self.identity):
            log.info("lease: another has it", lease=self._lease, me=self.identity, holder=self._view.holder)
        return True

    async def _write(self, action: Write) -> bool:
        # Read before the request leaves: others count from when they see it, which is later.
        sent, wall_sent = self._clock(), self._wall()
        try:
            async with asyncio.timeout(self._patience()):
                answer = await self._object.write(action)
        except (ApiError, Unreachable, TimeoutError, msgspec.MsgspecError) as error:
            self._view = unsure(self._view)
            self._say_trouble(type(action).__name__.lower(), error)
            return False
        self._view = wrote(self._view, action, answer, sent, self._clock())
        self._wall_until = wall_sent + self._timing.renew_deadline
        self._said = ""
        if not isinstance(action, Renew):
            log.info(f"lease: {type(action).__name__.lower()}", lease=self._lease, me=self.identity, why=action.why)
        return True

    # -- small parts

    def _patience(self) -> float:
        """How long one request may take: never past the moment at which we must stop acting anyway."""
        most = self._timing.renew_deadline / 2
        left = self._view.acts_until - self._clock()
        return min(most, max(0.2, left)) if left > 0 else most

    def _retry(self) -> float:
        """With jitter, so that replicas started together do not ask at the same time."""
        return self._timing.retry * random.uniform(0.8, 1.2)  # nosec B311 # jitter

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not past the moments at which we begin or cease to lead, nor past a call to leave."""
        now = self._clock()
        for moment in (self._view.acts_from, self._view.acts_until):
            if moment > now:
                seconds = min(seconds, moment - now + 0.01)
        if self._exit is not None:
            seconds = min(seconds, max(0.0, self._exit.deadline - now))
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _notice(self) -> None:
        held = self.held()
        if held == self._was_held:
            return
        self._was_held = held
        (self._gained if held else self._lost).set()
        (self._lost if held else self._gained).clear()
        log.info("leading" if held else "not leading", lease=self._lease, me=self.identity, why=self._standing())
        for told in self._listeners:
            told(held)

    def _standing(self) -> str:
        """Our standing, as a sentence for users."""
        view, now = self._view, self._clock()
        if view.held(now) and self._wall() < self._wall_until:
            return f"this replica holds the lease {self._lease}"
        if view.seen is None:
            return f"the lease {self._lease} has not been read yet"
        if view.holder == self.identity and now < view.acts_from:
            return (
                f"the lease {self._lease} was just created; waiting {view.acts_from - now:.0f} s for any earlier leader"
            )
        if self._exit is not None:
            return f"this replica is giving the lease {self._lease} back"
        if view.holder == self.identity:
            return f"the lease {self._lease} could not be renewed in time, so another replica may lead by now"
        if now < view.refrain_until:
            return f"the lease {self._lease} was handed over (held by {view.holder or 'nobody yet'})"
        return f"the lease {self._lease} is held by {view.holder or 'nobody'}"

    def _say_trouble(self, verb: str, error: BaseException) -> None:
        """Once per trouble, not once per retry."""
        words = str(error) or "no answer in time"
        if words != self._said:
            self._said = words
            log.warning(f"cannot {verb} the lease; trying again", lease=self._lease, me=self.identity, error=words)

"""Whether the BMC of a machine's host works: condition `BareMetalHostHealthy`, which ignores short outages. Pure.

A host whose BMC fails shows OK for some seconds at each retry. So the condition turns False when the host shows an
error a minute after its first one, and True again after a minute without any. Nothing else depends on it: a node runs
on without its BMC.
"""

from __future__ import annotations

from collections.abc import Callable

from hostler.apis.metal3 import BareMetalHost
from hostler.host.conditions import Condition, Status
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.model import Said, Trouble

DEBOUNCE_SECONDS = 60.0


def decide_health(host: BareMetalHost, said: Condition | None, trouble: Trouble) -> tuple[Said | None, float | None]:
    """What the condition says now (None: nothing yet), and in how many seconds it may say something else. Pure."""
    told_false = said is not None and said.status == Status.FALSE
    if host.failing:
        left = DEBOUNCE_SECONDS - trouble.failing_for
        if told_false or left <= 0:
            return Said(names.HEALTHY, False, "BareMetalHostError", error_of(host)), None
        return (Said(names.HEALTHY, True, "NoError") if said is not None else None), left
    left = DEBOUNCE_SECONDS - trouble.calm_for
    if said is not None and told_false and left > 0:
        return Said(names.HEALTHY, False, said.reason, said.message), left
    return Said(names.HEALTHY, True, "NoError"), None


def error_of(host: BareMetalHost) -> str:
    """The error that a host reports, as a sentence."""
    status = host.status
    what = f"Host {host.metadata.name} reports {status.error_type or 'an error'}"
    return f"{what}: {status.error_message[:200]}" if status.error_message else f"{what}."


class Troubles:
    """Follows the host cache. What it remembers may be lost: then the minute begins again, and what was said stays."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()
        self._failing: dict[str, float] = {}  # host -> its first error
        self._calm: dict[str, float] = {}  # host -> when it stopped to show one

    def host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        now = self._clock()
        if after is None:
            self._failing.pop(key, None)
            self._calm.pop(key, None)
        elif after.failing:
            if now - self._calm.pop(key, now) >= DEBOUNCE_SECONDS:
                self._failing.pop(key, None)  # what was before is over
            self._failing.setdefault(key, now)
        elif before is None or before.failing:
            self._calm[key] = now

    def of(self, host: BareMetalHost) -> Trouble:
        now, key = self._clock(), key_of(host.metadata)
        return Trouble(now - self._failing.get(key, now), now - self._calm.get(key, self._began))

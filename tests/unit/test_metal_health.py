"""Ready of a machine does not follow its BMC; `BareMetalHostHealthy` does, and not every blink of it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis import metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.host.conditions import Condition, Status
from hostler.instant import iso
from hostler.metal import names
from hostler.metal.decide import decide_associated
from hostler.metal.model import Facts, Trouble
from hostler.metal.status import DEBOUNCE_SECONDS, Troubles, decide_health, status_change
from tests.sizes import examples

CONSUMER = {"apiVersion": metal3.METAL3_MACHINE.api_version, "kind": "Metal3Machine", "name": "m", "namespace": "n"}
ERROR = {"operationalStatus": "error", "errorType": "power management error", "errorMessage": "no answer"}


def a_host(state: str = "provisioned", *, failing: bool = False) -> BareMetalHost:
    status = {"operationalStatus": "OK", "provisioning": {"state": state}, **(ERROR if failing else {})}
    spec = {"online": True, "image": {"url": "x"}, "consumerRef": CONSUMER}
    return msgspec.convert({"metadata": {"name": "h", "namespace": "n"}, "spec": spec, "status": status}, BareMetalHost)


def a_machine(status: Any = None) -> Metal3Machine:
    spec = {"providerID": "metal3://n/h/m", "image": {"url": "http://x/os", "checksum": "y"}}
    known = {"initialization": {"provisioned": True}, **(status or {})}
    return msgspec.convert({"metadata": {"name": "m", "namespace": "n"}, "spec": spec, "status": known}, Metal3Machine)


def said(decided: Any) -> dict[str, bool]:
    return {one.type: one.true for one in decided.said}


@pytest.mark.parametrize(
    ("state", "failing", "ready"),
    [
        ("provisioned", False, True),
        ("provisioned", True, True),
        ("externally provisioned", True, True),
        ("deprovisioning", False, False),
        ("deprovisioning", True, False),
        ("available", False, False),
    ],
)
def test_a_machine_that_was_ready_is_so_until_its_host_is_emptied(state: str, failing: bool, ready: bool) -> None:
    facts = Facts(a_machine(), host=a_host(state, failing=failing), trouble=Trouble(failing_for=1000))
    decision = decide_associated(facts)
    assert said(decision)[names.READY] == ready
    assert said(decision)[names.HEALTHY] == (not failing)
    assert ("no answer" in decision.why) == failing


def test_a_host_that_fails_before_it_is_provisioned_makes_no_machine_ready() -> None:
    fresh = msgspec.structs.replace(a_machine(), status=Metal3Machine().status)
    decision = decide_associated(Facts(fresh, host=a_host("provisioning", failing=True)))
    assert not said(decision)[names.READY]
    assert decision.why == "Host h reports power management error: no answer"


@pytest.mark.parametrize(
    ("failing", "before", "trouble", "after", "wake"),
    [
        (False, None, Trouble(), True, None),
        (True, None, Trouble(failing_for=59), None, 1),
        (True, True, Trouble(failing_for=20), True, 40),
        (True, True, Trouble(failing_for=60), False, None),
        (True, False, Trouble(failing_for=0), False, None),
        (False, False, Trouble(calm_for=50), False, 10),
        (False, False, Trouble(calm_for=60), True, None),
        (False, True, Trouble(calm_for=1), True, None),
    ],
)
def test_the_condition_turns_after_a_minute_either_way(
    failing: bool, before: bool | None, trouble: Trouble, after: bool | None, wake: float | None
) -> None:
    status = Status.TRUE if before else Status.FALSE
    told = None if before is None else Condition(names.HEALTHY, status, "Before", "as it was")
    found, look = decide_health(a_host(failing=failing), told, trouble)
    assert (found.true if found is not None else None, look) == (after, wake)
    if before is False and not failing and after is False:
        assert found is not None
        assert (found.reason, found.message) == ("Before", "as it was")


@settings(max_examples=examples(200))
@given(st.randoms(use_true_random=True))
def test_a_bmc_that_blinks_turns_the_condition_once_a_minute_at_most(dice: random.Random) -> None:
    now = 1000.0
    troubles = Troubles(lambda: now)
    machine, host = a_machine(), a_host()
    turned: list[float] = []
    wake: float | None = None
    begin = now
    while now < begin + 1000:
        after = a_host(failing=dice.random() < 0.5)
        troubles.host_changed("n/h", host, after)
        host = after
        at = now + dice.choice((1.0, 5.0, 30.0, 200.0))
        while True:  # as the controller: look now, and when the decision asked for it
            decision = decide_associated(Facts(machine, host=host, trouble=troubles.of(host)))
            assert said(decision)[names.READY]
            change = status_change(machine, decision.said, decision.status, now)
            before = health_of(machine)
            if change:
                machine = a_machine(msgspec.to_builtins(machine.status) | change["status"])
            if before is not None and health_of(machine) != before:
                turned.append(now)
            wake = decision.wake
            if wake is None or now + wake > at:
                break
            now += wake
        assert wake is None or wake > 0
        if at - now >= DEBOUNCE_SECONDS and wake is None:
            assert health_of(machine) == (not host.failing), "what lasts for a minute is told"
        now = at
    assert all(later - earlier >= DEBOUNCE_SECONDS for earlier, later in pairwise(turned))


def health_of(machine: Metal3Machine) -> bool | None:
    found = next((one for one in machine.status.conditions if one.type == names.HEALTHY), None)
    return None if found is None else found.status == Status.TRUE


def test_a_restart_begins_the_minute_again_and_keeps_what_was_told() -> None:
    told = {"type": names.HEALTHY, "status": "False", "reason": "BareMetalHostError", "lastTransitionTime": iso(0)}
    troubles = Troubles(lambda: 5.0)
    troubles.host_changed("n/h", None, a_host())
    facts = Facts(a_machine({"conditions": [told]}), host=a_host())
    decision = decide_associated(replace(facts, trouble=troubles.of(a_host())))
    assert not said(decision)[names.HEALTHY]
    assert decision.wake == DEBOUNCE_SECONDS

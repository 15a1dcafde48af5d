"""Incumbents: another controller is at work, gone, or we do not know. Only our own clock counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.capabilities import BY_NAME, CAPABILITIES
from hostler.safety.incumbents import (
    Container,
    DeploymentSeen,
    Incumbent,
    LeaseSeen,
    Memory,
    Sighting,
    State,
    Trail,
    TrailSeen,
    Verdict,
    WebhookSeen,
    Where,
    judge,
    recognise,
    remember,
)
from hostler.safety.switches import choose

AT = Where("capm3-system", "capm3-controller-manager")
LEASE = Where("capm3-system", "lock")
TRAIL = Trail("deployments.apps", Where("a", "b"), "someone")
CAPM3 = Incumbent("the Metal3 provider", (AT,), (LEASE,), (TRAIL,), remedy="Scale it to 0.")


def watch(*looks: tuple[float, Sighting]) -> Verdict:
    """Several looks, each at its moment; the verdict after the last."""
    memory = Memory()
    for now, sighting in looks:
        memory = remember(memory, sighting, now)
    return judge(CAPM3, looks[-1][1], memory, looks[-1][0])


def lease(mark: str, holder: str = "pod-1", seconds: float = 15) -> Sighting:
    return Sighting(leases=(LeaseSeen(LEASE, holder, mark, seconds),))


def test_a_deployment_that_is_wanted_counts_even_if_it_is_down() -> None:
    verdict = watch((0, Sighting(deployments=(DeploymentSeen(AT, 1, 0),))))
    assert verdict.state is State.FOUND
    assert verdict.why == (
        "The Metal3 provider: Deployment capm3-system/capm3-controller-manager is scaled to 1, of which ready: 0. "
        "Scale it to 0."
    )


def test_a_deployment_scaled_to_zero_is_gone() -> None:
    assert watch((0, Sighting(deployments=(DeploymentSeen(AT, 0, 0),)))).state is State.ABSENT


def test_a_lease_seen_once_says_nothing_yet() -> None:
    """Its renewTime is another machine's clock: however old or new it looks, it is watched first."""
    for mark in ("1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"):
        verdict = watch((100, lease(mark)))
        assert verdict.state is State.UNKNOWN
        assert verdict.wake == 22.5
        assert "pod-1" in verdict.why


def test_a_lease_that_changes_under_our_eyes_is_held() -> None:
    verdict = watch((0, lease("a")), (5, lease("b")))
    assert verdict.state is State.FOUND
    assert "pod-1 renews lease capm3-system/lock" in verdict.why


def test_a_lease_that_does_not_change_is_left_behind() -> None:
    assert watch((0, lease("a")), (22, lease("a"))).state is State.UNKNOWN
    assert watch((0, lease("a")), (23, lease("a"))).state is State.ABSENT
    assert watch((0, lease("a")), (5, lease("b")), (50, lease("b"))).state is State.ABSENT


def test_a_released_lease_has_no_holder() -> None:
    assert watch((0, lease("a", holder=""))).state is State.ABSENT


def test_a_lease_without_a_duration_is_watched_for_a_minute_and_a_half() -> None:
    assert watch((0, lease("a", seconds=0)), (80, lease("a", seconds=0))).state is State.UNKNOWN
    assert watch((0, lease("a", seconds=0)), (91, lease("a", seconds=0))).state is State.ABSENT


def test_a_field_manager_counts_only_when_we_saw_it_write() -> None:
    old, new = Sighting(trails=(TrailSeen(TRAIL, "1"),)), Sighting(trails=(TrailSeen(TRAIL, "2"),))
    assert watch((0, old)).state is State.ABSENT
    found = watch((0, old), (10, new))
    assert found.state is State.FOUND
    assert '"someone" wrote deployments.apps a/b 0 s ago' in found.why
    assert watch((0, old), (10, new), (311, new)).state is State.ABSENT


def test_a_webhook_that_points_nowhere_stops_us_too() -> None:
    hook = WebhookSeen("ValidatingWebhookConfiguration capm3", Where("capm3-system", "hook"), answered=False)
    verdict = watch((0, Sighting(webhooks=(hook,))))
    assert verdict.state is State.FOUND
    assert "points at nothing" in verdict.why
    answered = WebhookSeen("x", Where("a", "b"), answered=True)
    assert watch((0, Sighting(webhooks=(answered,)))).state is State.ABSENT


def test_a_look_that_failed_is_not_absence() -> None:
    verdict = watch((0, Sighting(failed=("Deployment x could not be read (forbidden)", "another"))))
    assert verdict.state is State.UNKNOWN
    assert "Deployment x could not be read (forbidden) and 1 more" in verdict.why


@given(
    st.lists(
        st.tuples(st.floats(0, 1000), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "pod"]), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_absent_is_only_said_on_complete_looks_with_no_lease_that_may_still_be_renewed(
    looks: list[tuple[float, str, str, bool]],
) -> None:
    looks.sort(key=lambda look: look[0])
    memory, since, mark_before = Memory(), 0.0, None
    for now, mark, holder, failed in looks:
        sighting = Sighting(leases=(LeaseSeen(LEASE, holder, mark, 15),), failed=("no",) if failed else ())
        memory = remember(memory, sighting, now)
        if mark != mark_before:
            since, mark_before = now, mark
        verdict = judge(CAPM3, sighting, memory, now)
        if verdict.state is State.ABSENT:
            assert not failed
            assert not holder or now - since >= 22.5


# -- what is switched on


def test_nothing_dangerous_is_on_by_default() -> None:
    on = {choice.capability.name for choice in choose(CAPABILITIES, (), ()) if choice.on}
    assert on == {"fleet", "history", "holds"}  # the history writes only ConfigMaps of its own


@pytest.mark.parametrize("given", ["VCENTER_HOST", "VCENTERS_FILE"])
def test_any_configured_vcenter_switches_maintenance_on(given: str) -> None:
    chosen = {choice.capability.name: choice for choice in choose(CAPABILITIES, (), (given,))}
    assert chosen["maintenance"].on
    assert given in chosen["maintenance"].why


def test_every_choice_has_a_sentence() -> None:
    for only in ((), ("metal",), ("maintenance", "join")):
        for choice in choose(CAPABILITIES, only, ("VCENTER_HOST",)):
            assert choice.why.endswith(".")


def test_a_capability_that_takes_a_place_says_whose() -> None:
    for name in ("maintenance", "metal", "reclaim", "platform", "ingress"):
        assert BY_NAME[name].incumbents
    for capability in CAPABILITIES:
        for incumbent in capability.incumbents:
            assert incumbent.remedy.endswith(".")


PLAIN, CHART = "gpu-node-vsphere-maintenance", "gpu-node-vsphere-maintenance-controller"
BOTH = ("GPU_NODE_LABEL", "VCENTER_HOST")


@pytest.mark.parametrize(
    ("name", "label", "container", "sign"),
    [
        # By its manifests, by Flux, which calls the release as the chart, and by Helm: release and chart, cut at 63.
        (PLAIN, "", Container("x"), "its name"),
        (CHART, "", Container("x"), "its name"),
        (f"{PLAIN}-{CHART}"[:63], "", Container("x"), "its name"),
        ("blue", CHART, Container("x"), f"label app.kubernetes.io/name={CHART}"),
        ("blue", "", Container(f"registry:5000/team/{CHART}:1.2"), f"image registry:5000/team/{CHART}:1.2"),
        ("blue", "", Container("r.io/my-vsphere-passthrough-node-controller@sha256:0"), "image r.io/my-"),
        ("blue", "", Container("x", (*BOTH, "TZ")), "it sets GPU_NODE_LABEL and VCENTER_HOST"),
        ("blue", "web", Container("registry:5000/web:1", BOTH[:1]), ""),
        ("blue", "", Container(f"r.io/web:{CHART}"), ""),
        # Ours, also under the other's name.
        (CHART, CHART, Container(f"r.io/{CHART}", (*BOTH, "HOSTLER_OPERATOR_NAMESPACE")), ""),
    ],
)
def test_the_predecessor_is_recognised_under_any_name(name: str, label: str, container: Container, sign: str) -> None:
    (one,) = BY_NAME["maintenance"].incumbents
    assert one.signs is not None
    found = recognise(one.signs, name, label, (Container("sidecar:1"), container))
    assert found.startswith(sign)
    assert bool(found) == bool(sign)

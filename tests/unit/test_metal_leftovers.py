"""What metal leaves on hosts: what `withdraw` would do, when it refuses, and what the doctor reports."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from hostler.errors import Complaint
from hostler.fleet.doctor import Level
from hostler.host.facts import Fact, Known, Unknown
from hostler.metal import names
from hostler.metal.leftovers import Leftovers, findings, refuse_mid_move
from hostler.metal.model import Host

GROUP = "infrastructure.cluster.x-k8s.io"
OWNER = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Metal3Machine", "name": "m1", "uid": "u", "controller": True}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
LABEL = "kubectl label crd baremetalhosts.metal3.io clusterctl.cluster.x-k8s.io="
NONE: Fact[tuple[str, ...]] = Known((), 0.0)


def host(name: str, *owners: Mapping[str, object], blocked: bool = True) -> Host:
    annotations = {names.BLOCK_MOVE: ""} if blocked else {}
    meta = {"name": name, "namespace": "n", "annotations": annotations, "ownerReferences": list(owners)}
    return msgspec.convert({"metadata": meta}, Host)


def test_what_would_be_taken_off_is_listed_per_host() -> None:
    both, owned = host("h1", OWNER, OTHER), host("h0", OWNER, blocked=False)
    assert Leftovers((both, host("h2")), (both, owned)).steps() == [
        "baremetalhost/n/h0 loses owner reference to Metal3Machine m1",
        f"baremetalhost/n/h1 loses annotation {names.BLOCK_MOVE} and owner reference to Metal3Machine m1",
        f"baremetalhost/n/h2 loses annotation {names.BLOCK_MOVE}",
    ]


def test_a_host_that_clusterctl_may_wait_for_is_not_let_go() -> None:
    with pytest.raises(Complaint, match=r"waiting for n/h1 \(Cluster n/c\)"):
        refuse_mid_move(Leftovers((host("h1"),), moving=("n/h1 (Cluster n/c)",)))
    refuse_mid_move(Leftovers((host("h1"),)))


@pytest.mark.parametrize(
    ("left", "labels", "on", "says"),
    [
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Known(False, 0.0), "waits for ever: n/h1."),
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Unknown("no operator"), "Cannot tell whether an operator still"),
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Known(True, 0.0), ""),
        (Known(Leftovers(), 0.0), NONE, Known(False, 0.0), ""),
        (Unknown("forbidden"), NONE, Known(False, 0.0), "could not be read: forbidden"),
        (Known(Leftovers(), 0.0), Known((LABEL,), 0.0), Known(True, 0.0), "leave hosts behind"),
        (Known(Leftovers(), 0.0), Known((LABEL,), 0.0), Known(False, 0.0), ""),
        (Known(Leftovers(), 0.0), Unknown("forbidden"), Known(True, 0.0), "takes hosts along: forbidden"),
    ],
)
def test_the_doctor_names_hosts_left_behind_now_and_after_a_move(
    left: Fact[Leftovers], labels: Fact[tuple[str, ...]], on: Fact[bool], says: str
) -> None:
    found = list(findings(left, labels, on=on))
    assert [one.level for one in found] == ([Level.WARNING] if says else [])
    assert all(says in one.why and one.fix for one in found)

"""What platform left behind, as `hostler doctor` and `hostler platform withdraw` say it."""

from __future__ import annotations

import pytest

from hostler.apis.openshift import ClusterCSIDriver, ClusterCSIDriverSpec
from hostler.explain.doctor import Level
from hostler.host.facts import Known, Unknown
from hostler.kube.records import Metadata
from hostler.platform.csi_driver import BEFORE
from hostler.platform.model import CSI_DRIVER, POLICY
from hostler.platform.withdrawal import Leftovers, leftover_findings

MADE = ((POLICY, Metadata(name="hostler-platform-1")),)


def driver(state: str) -> ClusterCSIDriver:
    return ClusterCSIDriver(
        metadata=Metadata(annotations={BEFORE: "Managed"}), spec=ClusterCSIDriverSpec(management_state=state)
    )


@pytest.mark.parametrize(
    ("left", "on", "levels"),
    [
        (Leftovers(), True, []),
        (Leftovers(), False, [Level.FINE]),
        (Leftovers(MADE), True, []),
        (Leftovers(MADE), False, [Level.WARNING]),
        (Leftovers(driver=driver("Unmanaged")), True, [Level.WARNING]),
        (Leftovers(driver=driver("Unmanaged")), False, [Level.PROBLEM]),
        (Leftovers(MADE, driver("Unmanaged")), False, [Level.PROBLEM, Level.WARNING]),
        (Leftovers(driver=driver("Managed")), True, []),
    ],
)
def test_the_doctor_names_what_is_left_and_how_it_goes(left: Leftovers, on: bool, levels: list[Level]) -> None:
    found = list(leftover_findings(Known(left, 0.0), on=Known(on, 0.0)))
    assert [one.level for one in found] == levels
    for one in found:
        if one.level is not Level.FINE:
            assert one.fix == ("HOSTLER_PLATFORM_WAY=auto gives it back." if on else "hostler platform withdraw")


def test_what_could_not_be_looked_at_is_said() -> None:
    (found,) = leftover_findings(Unknown("may not list clustercsidrivers"), on=Known(False, 0.0))
    assert (found.level, "may not list" in found.why) == (Level.WARNING, True)
    assert "mutatingadmissionpolicies" in found.fix


def test_an_operator_that_could_not_be_asked_is_not_one_that_has_it_off() -> None:
    (found,) = leftover_findings(Known(Leftovers(MADE, driver("Unmanaged")), 0.0), on=Unknown("may not get pods/proxy"))
    assert found.level is Level.WARNING
    assert "withdraw" not in f"{found.why} {found.fix}"
    assert list(leftover_findings(Known(Leftovers(), 0.0), on=Unknown("may not get pods/proxy"))) == []


def test_what_would_be_done_is_said_of_each() -> None:
    assert Leftovers(MADE, driver("Unmanaged")).describe() == [
        "MutatingAdmissionPolicy hostler-platform-1 is deleted",
        f"ClusterCSIDriver {CSI_DRIVER} is Unmanaged by our doing (annotation {BEFORE}), and is given back as Managed",
    ]
    assert Leftovers().describe() == []

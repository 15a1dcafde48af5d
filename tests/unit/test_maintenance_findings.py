"""What `hostler doctor` says of the operator's own vCenters."""

from __future__ import annotations

from hostler.explain.doctor import Level
from hostler.host.facts import Known, Unknown
from hostler.maintenance.status import MaintenanceStatus, Standing, list_findings


def test_each_vcenter_is_named_as_the_operator_stands_with_it() -> None:
    seen = MaintenanceStatus(
        vcenters=(Standing("a", True, "vCenter a is followed."), Standing("b", False, "vCenter b cannot be reached."))
    )
    well, ill = list_findings(Known(seen, 0.0))
    assert (well.level, well.what, well.fix) == (Level.FINE, "vCenter a, for the operator", "")
    assert (ill.level, ill.why) == (Level.PROBLEM, "vCenter b cannot be reached.")
    assert "docs/vsphere.md" in ill.fix


def test_a_vcenter_that_does_not_say_what_our_user_may_do_is_named() -> None:
    seen = MaintenanceStatus(vcenters=(Standing("a", True, "vCenter a is followed.", "NotSupported"),))
    well, unread = list_findings(Known(seen, 0.0))
    assert (well.level, unread.level) == (Level.FINE, Level.WARNING)
    assert "NotSupported" in unread.why
    assert "HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD" in unread.fix


def test_a_certificate_that_is_forgotten_at_a_restart_is_named() -> None:
    seen = MaintenanceStatus(vcenters=(Standing("a", True, "Connected.", certificate_warning="It is forgotten."),))
    well, warned = list_findings(Known(seen, 0.0))
    assert (well.level, warned.level, warned.why) == (Level.FINE, Level.WARNING, "It is forgotten.")


def test_machines_that_nobody_tells_of_a_maintenance_are_named() -> None:
    (seen,) = list_findings(Known(MaintenanceStatus(untold_machines=("team/gpu-1",)), 0.0))
    assert (seen.level, seen.what) == (Level.WARNING, "Cluster API")
    assert "team/gpu-1" in seen.why
    assert "cluster.x-k8s.io/skip-remediation" in seen.fix


def test_that_it_could_not_be_asked_is_said() -> None:
    (seen,) = list_findings(Unknown("No operator answers."))
    assert (seen.level, seen.fix) == (Level.WARNING, "hostler maintenance status")
    assert seen.why.endswith("No operator answers.")

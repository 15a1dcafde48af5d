"""Rights that are granted although not every run of the tests uses them where it could be seen, each with the reason.

tests/real/test_zz_rights.py reads in the API server's audit log what every operator of the whole run asked for. A right
that was never used and is not in this table fails it: it is either not needed, or not tried. docs/rights.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hostler.capabilities import CAPABILITIES
from hostler.install.grants import rights_for
from hostler.install.rights import LEASE_NAME, OWN, Right

_APPLY = "Made by server-side apply: the API server wants this right beside patch, and its log says patch."
LISTS = "API servers older than 1.33 have no streaming lists and are followed by paged ones; the tests' own is newer."
UNTRIED: dict[str, str] = {
    "approve signers.certificates.k8s.io, only kubernetes.io/kube-apiserver-client-kubelet, "
    "kubernetes.io/kubelet-serving": "Asked for by admission when a request is approved, which the log does not show.",
    "create mutatingadmissionpolicies.admissionregistration.k8s.io": _APPLY,
    "create mutatingadmissionpolicybindings.admissionregistration.k8s.io": _APPLY,
    "create poddisruptionbudgets.policy in openshift-ingress": _APPLY,
    "delete baremetalhosts.metal3.io": "Never used: OpenShift's admission wants it of whoever changes a host's owners.",
    "delete configmaps in its own namespace": "Once a day, for a history beyond its limits; tried without an operator.",
    "get baremetalhosts.metal3.io": "One that another process chose, or that is to be paused, is read afresh.",
    "get metal3machines.infrastructure.cluster.x-k8s.io": "So is the machine that a host was chosen for.",
    "list endpointslices.discovery.k8s.io": "Once a webhook points at the old provider; tried without an operator.",
    "patch ingresses.config.openshift.io, only cluster": "The backfill is tried on an API server of its own.",
    "patch ingresses.config.openshift.io/status, only cluster": "So is this part of it.",
}


def phrase(right: Right, verb: str) -> str:
    """`patch configmaps in its own namespace, only hostler-join`: one verb of one right, without its reason."""
    where = {"": "", OWN: " in its own namespace"}.get(right.namespace, f" in {right.namespace}")
    names = ", ".join("its lease" if name == LEASE_NAME else name for name in right.names)
    return f"{verb} {right.resource}{where}" + (f", only {names}" if names else "")


def phrases() -> Iterator[tuple[str, Right, str]]:
    """Every verb of every right that the chart grants with everything on, OpenShift included."""
    for right in rights_for([capability.name for capability in CAPABILITIES]):
        for verb in right.verbs:
            yield phrase(right, verb), right, verb


def reason(name: str, right: Right, verb: str) -> str:
    """Why it is granted although nobody used it; empty: there is none."""
    return LISTS if verb == "list" and "watch" in right.verbs else UNTRIED.get(name, "")

"""What the API server itself refuses for Hostler: ValidatingAdmissionPolicies (Kubernetes 1.30 and newer).

The one table behind the chart, `hostler manifests`, `hostler doctor` and docs/rights.md. They are CEL in the API server
and ask nobody, so a write is refused where one cannot be evaluated (`failurePolicy: Fail`). Each compares with the old
object: what was there before a policy stays, and an ordinary write of such an object passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from hostler.apis.fleet import WHO_LIMIT
from hostler.explain.doctor import Finding, Level
from hostler.host.facts import Fact, Unknown
from hostler.kube.kinds import FLEET, Kind
from hostler.kube.records import Metadata, Record

GROUP = "admissionregistration.k8s.io"
POLICY = Kind(GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
BINDING = Kind(GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False)
# What Hostler and the predecessor write on Nodes. Nobody's kubelet has a reason to.
NODE_PREFIXES = ("hostler.dev/", "vsphere-maintenance.boeye.net/")
SUBDOMAINS = ".hostler.dev/"  # of any name before it, such as reclaim.hostler.dev/
BINDING_SPEC: Mapping[str, Any] = {"validationActions": ["Deny"]}


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """One policy, bound by a binding of the same name. `without`: what is possible where it is not in force."""

    name: str
    refuses: str
    without: str
    spec: Mapping[str, Any]


class PolicySeen(Record, frozen=True):
    """A policy or a binding as it is in the cluster."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


Seen: TypeAlias = tuple[Sequence[PolicySeen], Sequence[PolicySeen]]  # policies, bindings


def is_ours(key: str) -> bool:
    """Whether a label or annotation on a Node is Hostler's or its predecessor's, and not for a kubelet to write."""
    return key.startswith(NODE_PREFIXES) or SUBDOMAINS in key


def _resources(group: str, version: str, *resources: str) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"]}
    return {"resourceRules": [{**rule, "resources": list(resources)}]}


def _kept(part: str) -> str:
    """CEL: every key of ours has the value it had, and none is gone. `part`: labels or annotations."""
    starts = [f"key.startsWith('{prefix}')" for prefix in NODE_PREFIXES]
    ours = " || ".join([*starts, f"key.contains('{SUBDOMAINS}')"])
    now, before = f"variables.{part}", f"variables.{part}Before"
    kept = f"{now}.all(key, !({ours}) || (key in {before} && {before}[key] == {now}[key]))"
    return f"{kept} && {before}.all(key, !({ours}) || key in {now})"


def _variables(**expressions: str) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


_OTHERS = "filter(entry, entry.?by.orValue('') != variables.user)"
# To look each entry up among those before costs their product, and one expression may cost a million: the list is
# looked at in parts, by the last character of the names. It may be a thousand entries long.
_ENDINGS = ("[0-4]$", "[5-9]$", "[^0-9]$")


def _only_kept(number: int) -> dict[str, str]:
    """CEL: no entry of another user is new or changed. Linear where none of them was taken away."""
    found = f"variables.part{number}.all(entry, entry in variables.part{number}Before)"
    said = "by of an entry of spec.join.expected must be the user who writes it"
    return {
        "expression": f"variables.others == variables.othersBefore || {found}",
        "message": said,
        "messageExpression": f"'{said}: ' + variables.user",
        "reason": "Forbidden",
    }


def _parts() -> dict[str, str]:
    return {
        f"part{number}{when}": f"variables.others{when}.filter(entry, entry.name.matches('{ending}'))"
        for number, ending in enumerate(_ENDINGS)
        for when in ("", "Before")
    }


NODE_MARKS = AdmissionPolicy(
    "hostler-node-marks",
    "Labels and annotations hostler.dev/* and vsphere-maintenance.boeye.net/* on Nodes, written by a kubelet "
    "(group system:nodes).",
    "a kubelet can write Hostler's labels and annotations on its own Node",
    {
        "failurePolicy": "Fail",
        "matchConstraints": _resources("", "v1", "nodes", "nodes/status"),
        "matchConditions": [{"name": "by-a-kubelet", "expression": "'system:nodes' in request.userInfo.groups"}],
        "variables": _variables(
            labels="object.metadata.?labels.orValue({})",
            annotations="object.metadata.?annotations.orValue({})",
            labelsBefore="oldObject == null ? {} : oldObject.metadata.?labels.orValue({})",
            annotationsBefore="oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})",
        ),
        "validations": [
            {
                "expression": _kept(part),
                "message": f"a kubelet may not write {part} of hostler.dev or vsphere-maintenance.boeye.net on a Node",
                "reason": "Forbidden",
            }
            for part in ("labels", "annotations")
        ],
    },
)
EXPECTED_HOSTS = AdmissionPolicy(
    "hostler-expected-hosts",
    "Entries of spec.join.expected of the Fleet whose `by` is not the user of the request. Entries that were there "
    "before stay as they were.",
    "a user who may patch the Fleet can expect hosts in the name of another user",
    {
        "failurePolicy": "Fail",
        "matchConstraints": _resources(FLEET.group, "*", FLEET.plural),
        "variables": _variables(
            # As long as the field may be. Cut by characters, as `hostler join expect` cuts it.
            user=f"request.userInfo.username.size() > {WHO_LIMIT} ? request.userInfo.username.substring(0, {WHO_LIMIT})"
            " : request.userInfo.username",
            others=f"object.?spec.?join.?expected.orValue([]).{_OTHERS}",
            othersBefore=f"oldObject == null ? [] : oldObject.?spec.?join.?expected.orValue([]).{_OTHERS}",
            **_parts(),
        ),
        "validations": [_only_kept(number) for number in range(len(_ENDINGS))],
    },
)
POLICIES: tuple[AdmissionPolicy, ...] = (EXPECTED_HOSTS, NODE_MARKS)


# -- what is in force


def find_problem(policy: AdmissionPolicy, policies: Sequence[PolicySeen], bindings: Sequence[PolicySeen]) -> str:
    """Why a policy is not in force as this version ships it; empty: it is."""
    there = next((candidate for candidate in policies if candidate.metadata.name == policy.name), None)
    if there is None:
        return "is missing"
    if not _says(there.spec, policy.spec):
        return "is not as this version ships it"
    wanted = {"policyName": policy.name, **BINDING_SPEC}
    if not any(_says(candidate.spec, wanted) and "matchResources" not in candidate.spec for candidate in bindings):
        return "is not bound by a ValidatingAdmissionPolicyBinding that denies"
    return ""


def _says(current: Any, wanted: Any) -> bool:
    """Whether what is there says all that is wanted; what the API server added to it does not count."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(_says(current.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(current, list) or len(current) != len(wanted):
            return False
        return all(_says(entry, other) for entry, other in zip(current, wanted, strict=True))
    return bool(current == wanted)


def policy_findings(seen: Fact[Seen | None]) -> Iterator[Finding]:
    """What `hostler doctor` says of them. None: the API server does not have the kind."""
    what = "admission policies"
    if isinstance(seen, Unknown):
        look = f"To look at them you need `list` on {POLICY.resource} and {BINDING.resource}."
        yield Finding(Level.WARNING, what, seen.why, look)
        return
    if seen.value is None:
        possible = " and ".join(policy.without for policy in POLICIES)
        why = f"This API server has no {POLICY.kind} (Kubernetes 1.30 and newer have it): {possible}."
        yield Finding(Level.WARNING, what, why, "Upgrade the cluster.")
        return
    fine = []
    for policy in POLICIES:
        problem = find_problem(policy, *seen.value)
        if problem:
            fix = "`helm upgrade` with admissionPolicies.enabled=true, or apply `hostler manifests`."
            yield Finding(Level.WARNING, what, f"Policy {policy.name} {problem}: {policy.without}.", fix)
        else:
            fine.append(policy.name)
    if fine:
        yield Finding(Level.FINE, what, f"In force: {', '.join(fine)}.")

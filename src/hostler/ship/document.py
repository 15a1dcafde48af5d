"""Pages of docs/ that are made from tables: docs/rights.md, docs/alerts.md, and the end of each capability's page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hostler.capabilities import CAPABILITIES, SETTINGS
from hostler.explain.callers import METRICS_PATH
from hostler.install.admission import POLICIES
from hostler.install.grants import rights_of
from hostler.install.people import METRICS_READER, METRICS_WHY, PEOPLE, SERVICE_NAME
from hostler.install.rights import LEASE_NAME, OWN, Right
from hostler.ship.alerts import Alert
from hostler.ship.settings_page import row
from hostler.ship.untried import LISTS, UNTRIED

RIGHTS = """\
# Rights in Kubernetes

Made from `src/hostler/install/rights.py` and each capability's `rbac.py` by `make chart`; a test compares the two. The
chart grants what is listed for the capabilities that are on, and nothing else: no wildcard, no `update`, no
`deletecollection`, no `impersonate`, no `escalate`, no `bind`. `hostler rights` prints the same, and the roles as YAML
for those without Helm. `hostler doctor` asks the API server whether the operator's ServiceAccount has every one.

Lines with (OpenShift) are granted only with `openshift: true`.

Every authenticated identity may ask for its own name and for the server's version; nothing more is assumed.

## What the operator's token equals

A user who reads the operator's token, or runs a pod as its ServiceAccount, has its rights. So guard its namespace as
you guard kube-system: give nobody `edit` or `admin` there who is no administrator of the cluster.

| with | the token is worth |
|---|---|
| nothing but what is always on | `patch` on every node: cordons, labels and taints; it reads every pod |
| maintenance | the same, and it evicts any pod that its budget lets go; the vCenter's login is in the same namespace |
| join | cluster-admin in effect: it approves certificates by which any machine becomes any node |
| ingress, platform | cluster-admin in effect: it patches Deployments or DaemonSets of any namespace |
| metal | cluster-admin in effect, also of the clusters it provisions: it decides what machines boot |
| reclaim | cluster-admin in effect, also of old clusters: it reads every Secret, among them their kubeconfigs |
"""
PEOPLE_HEAD = """
## Roles for people

Made from `src/hostler/install/people.py`. The chart (`rbac.people`) and `hostler manifests` make these ClusterRoles,
and bind them to nobody; `hostler rights --people` prints them. Each has the rights of the one before it.
`hostler-viewer` is aggregated to `view`, and so is part of `edit` and `admin`, which contain `view`; the others are
aggregated to nothing. With another name of the release their names begin with that.

    kubectl create clusterrolebinding ada-operates --clusterrole=hostler-operator --user=ada

A ClusterRole cannot name a namespace. So the lease, the Service and hostler-reader are named, and a user with the role
in the whole cluster has it for objects of these names in every namespace: call no other ServiceAccount hostler-reader.
No role has `pods/proxy`, or `services/proxy` without a name: with those, every viewer would reach every pod.

`patch` on `fleets` is an administrator's right, and in no role but hostler-admin: see there what it equals.
"""
ADMISSION = """
## What the API server itself refuses

Two ValidatingAdmissionPolicies, from `src/hostler/install/admission.py`, on API servers of 1.30 and newer. The chart
installs them (`admissionPolicies.enabled`), `hostler manifests` prints them, and `hostler doctor` says whether they are
in force. They are CEL in the API server and ask nobody; a write that one cannot judge is refused. What was there before
a policy stays.

| policy | refuses | without it |
|---|---|---|
"""
UNUSED = """
## Granted, and not seen in every run of the tests

`make test` compares what every operator asked of the API server with this table: nothing may be refused, and a right
that nobody used is either taken out or listed here (`src/hostler/ship/untried.py`).

| right | why it is granted all the same |
|---|---|
"""
ALERTS = """\
# Alerts, and what to do

Made from `chart/alerts/` by `make chart`; a test compares the two. The chart makes a PrometheusRule of those whose
capability is on (`--set prometheusRule.enabled=true`). Each alert fires and resolves in a test of its own expression.
"""
_NAMED = {LEASE_NAME: "its lease", SERVICE_NAME: "its Service (`hostler:http`)"}
END = "<!-- made by `make chart`, down to the end -->"


def ended(page: str, capability: str, alerts: Sequence[Alert]) -> str:
    """The page of a capability, with its settings and its alerts at the end as they are now."""
    parts = [f"{page.partition(END)[0].rstrip()}\n\n{END}\n\n## Every setting\n\n"]
    parts.append("| variable | flag | default | what it is |\n|---|---|---|---|\n")
    parts += [row(setting) for setting in SETTINGS if setting.section == capability]
    parts.append("\n## Alerts\n\n| alert | what happened | what to do |\n|---|---|---|\n")
    for alert in alerts:
        link = f"[{alert.alert}](alerts.md#{alert.alert.lower()})"
        case = re.sub(r"{{.+?}}", "N", alert.annotations["summary"])
        parts.append(f"| {link} | {case} | {alert.annotations['runbook']} |\n")
    return "".join(parts)


def rights() -> str:
    parts = [RIGHTS]
    for capability in CAPABILITIES:
        always = " (always on)" if capability.always else ""
        parts.append(
            f"\n## {capability.name.capitalize()}{always}\n\n| on | verbs | where | why |\n|---|---|---|---|\n"
        )
        parts += [_row(right) for right in rights_of(capability)]
    parts.append(ADMISSION)
    parts += [f"| `{policy.name}` | {policy.refuses} | {policy.without} |\n" for policy in POLICIES]
    parts += _people()
    parts.append(UNUSED)
    parts += [f"| {name} | {why} |\n" for name, why in {"list, beside watch": LISTS, **UNTRIED}.items()]
    return "".join(parts)


def _people() -> Iterator[str]:
    yield PEOPLE_HEAD
    for role in PEOPLE:
        also = f"Beside what hostler-{PEOPLE[PEOPLE.index(role) - 1].name} has:\n\n" if role is not PEOPLE[0] else ""
        yield f"\n### hostler-{role.name}\n\nFor {role.commands}.\n\nWhat it equals: {role.equals}\n\n"
        yield f"{also}| on | verbs | where | why |\n|---|---|---|---|\n"
        yield from (_row(right) for right in role.rights)
    yield f"\n### hostler-{METRICS_READER}\n\n{METRICS_WHY}\n\n"
    yield f"| on | verbs |\n|---|---|\n| nonResourceURL `{METRICS_PATH}` | get |\n"


def _row(right: Right) -> str:
    everywhere = f"the cluster, or `{right.limited_by}`" if right.limited_by else "the cluster"
    where = "its own namespace" if right.namespace == OWN else right.namespace or everywhere
    if right.names:
        where += ", only " + ", ".join(_NAMED.get(name, f"`{name}`") for name in right.names)
    if right.openshift:
        where += " (OpenShift)"
    return f"| `{right.resource}` | {', '.join(right.verbs)} | {where} | {right.why} |\n"


def runbook(alerts: Mapping[str, tuple[Alert, ...]]) -> str:
    parts = [ALERTS]
    for capability, found in alerts.items():
        parts.append(f"\n## {capability.capitalize()}\n")
        for alert in found:
            parts.append(
                f"\n### {alert.alert}\n\n{alert.annotations['description']}\n\n"
                f"- Severity: {alert.labels['severity']}, after {alert.for_}.\n"
                f"- Fires on: `{' '.join(alert.expr.split())}`\n- What to do: {alert.annotations['runbook']}\n"
            )
    return "".join(parts)

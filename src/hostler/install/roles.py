"""The roles of an operator as manifests: what the chart makes of the table of rights, for those without Helm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostler.install.rights import LEASE_NAME, OWN, Right

Json = dict[str, Any]
_API = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Account:
    """Who the operator is, and what its lease is called."""

    namespace: str
    name: str = "hostler"
    lease: str = "hostler"
    limits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the namespaces that settings name

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        return "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"

    def places(self, right: Right) -> tuple[str, ...]:
        """The namespaces of a right; an empty name: all of them."""
        if right.namespace:
            return (self.namespace if right.namespace == OWN else right.namespace,)
        return self.limits.get(right.limited_by) or ("",)

    def names(self, right: Right) -> tuple[str, ...]:
        return tuple(self.lease if name == LEASE_NAME else name for name in right.names)


def rule(right: Right, account: Account) -> Json:
    made: Json = {"apiGroups": [right.group], "resources": [right.plural]}
    if right.names:
        made["resourceNames"] = list(account.names(right))
    return {**made, "verbs": list(right.verbs)}


def roles(rights: Iterable[Right], account: Account, *, openshift: bool) -> list[Json]:
    """One role and binding per namespace, and one for the cluster."""
    places: dict[str, list[Json]] = {}
    for right in rights:
        if openshift or not right.openshift:
            for place in account.places(right):
                places.setdefault(place, []).append(rule(right, account))
    return [made for place, rules in sorted(places.items()) for made in _role(place, rules, account)]


def _role(place: str, rules: list[Json], account: Account) -> tuple[Json, Json]:
    kind = "Role" if place else "ClusterRole"
    metadata: Json = {"name": account.name, **({"namespace": place} if place else {})}
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    binding: Json = {
        "apiVersion": f"{_API}/v1", "kind": f"{kind}Binding", "metadata": dict(metadata),
        "roleRef": {"apiGroup": _API, "kind": kind, "name": account.name}, "subjects": [subject],
    }  # fmt: skip
    return {"apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata, "rules": rules}, binding

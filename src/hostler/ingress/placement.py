"""Where an ingress runs: one function from what the cluster says to the fields of its Deployment. Pure.

Invariant: the placement depends on nothing but the arguments, so applying it twice changes nothing, and workers that
join do not move a router that belongs on the control plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostler.apis.openshift import Infrastructure, IngressConfig, IngressController
from hostler.host.scheduling import REQUIRED, required_terms
from hostler.ingress.model import (
    CONTROL_PLANE,
    EXTERNAL,
    MANAGED_BY,
    MASTER,
    OS_LINUX,
    POD_LABEL,
    REMOTE_WORKER,
    SINGLE,
    WORKER,
    Placed,
    Placement,
    Refused,
    Role,
    Step,
    Where,
)
from hostler.kube.records import Node, Selector

HOST_NETWORK = "HostNetwork"
# Where a cloud has load balancers, routers are published through one; everywhere else on the nodes' own ports.
_LOAD_BALANCED = frozenset({"AWS", "Azure", "GCP", "IBMCloud", "PowerVS", "AlibabaCloud"})
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_ROLE_LABELS = (MASTER, CONTROL_PLANE)


def place(
    ingress: IngressConfig | None,
    infrastructure: Infrastructure,
    controller: IngressController,
    nodes: Iterable[Node],
    *,
    configured: str = "",
    router: Placed | None = None,
) -> Placement | Refused:
    """The placement of one IngressController's router.

    `configured` is the owner's control-plane role label; `router` is the Deployment as it is, for its pod selector.
    """
    where, warning, placed = _where(ingress, infrastructure)
    single, topology = _topology(where, infrastructure)
    replicas, counted = _replicas(controller, single)
    role = control_plane_role(tuple(nodes), configured, router, otherwise=MASTER)
    selector = _selector(controller, where, role)
    if isinstance(selector, Refused):
        return selector
    node_selector, pinned, selected = selector
    tolerations, tolerated = _tolerations(controller, pinned, role.label)
    host_network = publishing(controller, infrastructure) == HOST_NETWORK
    pods = router_pod_selector(controller.metadata.name, router)
    # With the host's network the ports themselves keep two routers off one node.
    apart = not single and not host_network
    return Placement(
        where=where,
        single=single,
        replicas=replicas,
        node_selector=node_selector,
        tolerations=tolerations,
        affinity=_affinity(_node_term(where, role, node_selector, pinned), apart, router, pods),
        spread=(_spread(pods),),
        strategy=_strategy(single, replicas, host_network),
        budget=_budget(replicas),
        warning=warning,
        steps=(placed, topology, counted, selected, tolerated),
    )


# -- where


def _where(ingress: IngressConfig | None, infrastructure: Infrastructure) -> tuple[Where, str, Step]:
    source = "Ingress cluster, status.defaultPlacement"
    wanted = ingress.status.default_placement if ingress is not None else ""
    if wanted == Where.CONTROL_PLANE and infrastructure.status.control_plane_topology == EXTERNAL:
        warning = (
            "The Ingress says ControlPlane, but the control plane is External and has no nodes here; "
            "routers are placed on workers instead. Set status.defaultPlacement of the Ingress to Workers."
        )
        step = Step("placement", Where.WORKERS, "Infrastructure cluster, status.controlPlaneTopology", warning)
        return Where.WORKERS, warning, step
    if wanted == Where.CONTROL_PLANE:
        return Where.CONTROL_PLANE, "", Step("placement", wanted, source, "it says ControlPlane")
    why = "it says Workers" if wanted else "it says nothing, which means Workers"
    return Where.WORKERS, "", Step("placement", Where.WORKERS, source if wanted else f"default ({source})", why)


def _topology(where: Where, infrastructure: Infrastructure) -> tuple[bool, Step]:
    status = infrastructure.status
    if where is Where.CONTROL_PLANE:
        name, value = "controlPlaneTopology", status.control_plane_topology
    else:
        name, value = "infrastructureTopology", status.infrastructure_topology
    return value == SINGLE, Step(
        "topology", value or "(empty)", f"Infrastructure cluster, status.{name}", f"{name} counts for {where}"
    )


def _replicas(controller: IngressController, single: bool) -> tuple[int, Step]:
    asked = controller.spec.replicas
    if asked is not None:
        return asked, Step("replicas", str(asked), "spec.replicas", "the IngressController says so")
    count = 1 if single else 2
    why = "one for SingleReplica" if single else "two for every topology but SingleReplica"
    return count, Step("replicas", str(count), "default by topology", why)


def control_plane_role(nodes: Sequence[Node], configured: str, current: Placed | None, *, otherwise: str) -> Role:
    """The label that marks control-plane nodes here, with the value they have: kubeadm writes "", k3s and RKE2 "true".

    `otherwise` wins where any node has it: `master` on OpenShift, `control-plane` elsewhere.
    What is in use stays in use while it selects anything, and while no node carries any (the only control-plane node
    registers again): a selector that changed with every join and reboot would roll the router out each time.
    """
    in_use = _role_in_use(current, (configured,) if configured else _ROLE_LABELS)
    carried = [label for label in _ROLE_LABELS if any(label in node.metadata.labels for node in nodes)]
    label = configured
    if not label and in_use is not None and (in_use.label in carried or not carried):
        label = in_use.label
    if not label:
        label = otherwise if otherwise in carried or not carried else carried[0]
    same = in_use if in_use is not None and in_use.label == label else None
    values = {node.metadata.labels[label] for node in nodes if label in node.metadata.labels}
    if not values:
        return same or Role(label, "")
    if len(values) > 1 or (same is not None and same.value is None):
        return Role(label, None)
    return Role(label, values.pop())


def _role_in_use(current: Placed | None, labels: Sequence[str]) -> Role | None:
    """The role that a workload asks for now, as we write it: in its node selector, or with Exists or DoesNotExist."""
    if current is None:
        return None
    pod = current.spec.template.spec
    for label in labels:
        if label in pod.node_selector:
            return Role(label, pod.node_selector[label])
    rules = [rule for term in required_terms(pod.affinity) or () for rule in term.get("matchExpressions") or ()]
    operators = {rule.get("key"): rule.get("operator") for rule in rules}
    for label in labels:
        if operators.get(label) in ("Exists", "DoesNotExist"):
            return Role(label, None if operators[label] == "Exists" else "")
    return None


def _selector(
    controller: IngressController, where: Where, role: Role
) -> tuple[Mapping[str, str], bool, Step] | Refused:
    """The node selector, whether the pods are held on control-plane nodes, and what decided it."""
    placement = controller.spec.node_placement
    if placement is not None and placement.node_selector is not None:
        found = _node_selector_of(controller.metadata.name, placement.node_selector)
        if isinstance(found, Refused):
            return found
        step = Step(
            "nodeSelector", describe_selector(found), "spec.nodePlacement.nodeSelector", "it replaces the default"
        )
        return found, any(label in found for label in (*_ROLE_LABELS, role.label)), step
    if where is Where.WORKERS:
        chosen = {**OS_LINUX, WORKER: ""}
        step = Step("nodeSelector", describe_selector(chosen), "default by placement", f"the default for {where}")
        return chosen, False, step
    return role_selector(role), True, role_step(role)


def role_selector(role: Role) -> dict[str, str]:
    """The node selector of control-plane nodes; where their values differ, `exists_term` selects them."""
    return {**OS_LINUX, **({role.label: role.value} if role.value is not None else {})}


def role_step(role: Role) -> Step:
    if role.value is not None:
        why = f"the default for {Where.CONTROL_PLANE}"
        return Step("nodeSelector", describe_selector(role_selector(role)), "default by placement", why)
    why = f"the control-plane nodes have, or had, different values of {role.label}, so its presence counts"
    return Step("nodeSelector", f"{describe_selector(OS_LINUX)}, {role.label} exists", "default by placement", why)


def node_rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression of a required node affinity."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def required_affinity(*rules: Mapping[str, Any]) -> dict[str, Any]:
    """A required node affinity that asks for all of these."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [dict(rule) for rule in rules]}]}}}


def _node_term(where: Where, role: Role, node_selector: Mapping[str, str], pinned: bool) -> Mapping[str, Any] | None:
    if where is Where.WORKERS:
        # Remote workers sit behind a slow line; traffic for everybody must not go there and back.
        return node_rule(REMOTE_WORKER, "NotIn", "")
    return node_rule(role.label, "Exists") if pinned and role.value is None and node_selector == OS_LINUX else None


def _node_selector_of(controller: str, selector: Selector) -> dict[str, str] | Refused:
    """A label selector as a nodeSelector, where it can be one."""
    field, found = "spec.nodePlacement.nodeSelector", dict(selector.match_labels)

    def refused(why: str) -> Refused:
        return Refused(f"IngressController {controller}: {field} cannot be used: {why}", field)

    for number, expression in enumerate(selector.match_expressions):
        at, only = f"matchExpressions[{number}]", "but a node selector knows only In with one value."
        if expression.operator != "In":
            return refused(f"{at} has operator {expression.operator}, {only}")
        if len(expression.values) != 1:
            return refused(f"{at} has {len(expression.values)} values, {only}")
        value = expression.values[0]
        if found.setdefault(expression.key, value) != value:
            return refused(f"{expression.key} is to be {found[expression.key]!r} and {value!r} at once.")
    return found


def describe_selector(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(selector.items())) or "(any node)"


def _tolerations(controller: IngressController, pinned: bool, label: str) -> tuple[tuple[Mapping[str, Any], ...], Step]:
    placement = controller.spec.node_placement
    if placement is not None and placement.tolerations is not None:
        given = placement.tolerations
        why = "the IngressController says so"
        return given, Step("tolerations", str(len(given)), "spec.nodePlacement.tolerations", why)
    if pinned:
        why = "control-plane nodes are tainted as soon as there are workers; without these the pod would stay Pending"
        step = Step("tolerations", "control-plane taints", "default by nodeSelector", why)
        return control_plane_tolerations(label), step
    return (), Step("tolerations", "none", "default", "the nodes selected need none")


def control_plane_tolerations(label: str = "") -> tuple[Mapping[str, Any], ...]:
    """For the taints that keep workloads off control-plane nodes; `label` is a role label of the owner's own."""
    keys = (*_ROLE_LABELS, *((label,) if label and label not in _ROLE_LABELS else ()))
    return tuple({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys)


# -- how it is kept there


def publishing(controller: IngressController, infrastructure: Infrastructure) -> str:
    """How the router is reached: as its spec or its status says, else by platform."""
    for strategy in (controller.spec.endpoint_publishing_strategy, controller.status.endpoint_publishing_strategy):
        if strategy is not None and strategy.type:
            return strategy.type
    return "LoadBalancerService" if infrastructure.platform in _LOAD_BALANCED else HOST_NETWORK


def router_pod_selector(name: str, router: Placed | None) -> Mapping[str, Any]:
    """The label selector of a router's pods: its Deployment's own, which cannot be changed, or the usual one."""
    own = selector_body(router.spec.selector) if router is not None else {}
    return own or {"matchLabels": {POD_LABEL: name}}


def selector_body(selector: Selector) -> Mapping[str, Any]:
    """A label selector as it is written; what is empty is left out."""
    found: dict[str, Any] = {}
    if selector.match_labels:
        found["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        found["matchExpressions"] = [
            {
                "key": expression.key,
                "operator": expression.operator,
                **({"values": list(expression.values)} if expression.values else {}),
            }
            for expression in selector.match_expressions
        ]
    return found


def _affinity(
    term: Mapping[str, Any] | None, apart: bool, router: Placed | None, pods: Mapping[str, Any]
) -> Mapping[str, Any]:
    found: dict[str, Any] = required_affinity(term) if term is not None else {}
    if apart:
        # Per revision, so that a new pod may stand beside the old one it replaces.
        where = {"topologyKey": _HOSTNAME, "labelSelector": pods}
        found["podAntiAffinity"] = {REQUIRED: [{**where, "matchLabelKeys": ["pod-template-hash"]}]}
        if router is None or router.metadata.labels.get(MANAGED_BY) == "hostler":
            # A router that we made: a new pod is drawn to the node of an old one, which then answers throughout.
            beside = {**where, "mismatchLabelKeys": ["pod-template-hash"]}
            found["podAffinity"] = {_PREFERRED: [{"weight": 100, "podAffinityTerm": beside}]}
    return found


def _spread(pods: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": pods,
        "matchLabelKeys": ["pod-template-hash"],
    }


def _strategy(single: bool, replicas: int, host_network: bool) -> Mapping[str, Any]:
    unavailable = "25%" if single or replicas >= 4 else "50%"
    return rolling_update(unavailable, host_network)


def rolling_update(unavailable: int | str, host_network: bool) -> Mapping[str, Any]:
    """A rolling update; on the host's network a second pod would wait for the first one's ports for ever."""
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": 0 if host_network else "25%"},
    }


def _budget(replicas: int) -> int | str | None:
    if replicas < 2:
        return None  # a budget over one pod would only ever block drains
    return 1 if replicas == 2 else "25%"


def least_available(placement: Placement) -> int:
    """The least number of available pods the rolling update leaves: as the Deployment controller counts."""
    replicas = placement.replicas or 0
    update = placement.strategy.get("rollingUpdate", {})
    unavailable = _of(update.get("maxUnavailable", 0), replicas, up=False)
    surge = _of(update.get("maxSurge", 0), replicas, up=True)
    if unavailable == 0 and surge == 0:
        unavailable = 1
    return max(0, replicas - unavailable)


def _of(share: int | str, whole: int, *, up: bool) -> int:
    if isinstance(share, int):
        return share
    percent = int(share.removesuffix("%"))
    return -(-whole * percent // 100) if up else whole * percent // 100

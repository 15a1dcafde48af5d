"""From what is known of a cluster (watch caches, or one look by the CLI) to the facts of one decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from hostler.apis.fleet import IngressPolicy, IngressWorkload
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.drain.selector import matches
from hostler.host.facts import Fact
from hostler.host.reverts import Revert
from hostler.ingress.cluster import ClusterFacts
from hostler.ingress.decide import Facts, Policy, router_name
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, DEFAULT, ROUTERS_IN, Placed, Unreadable
from hostler.ingress.placement import publishing
from hostler.ingress.template import check_template, router_template
from hostler.ingress.wildcard import Pointing, pointing
from hostler.instant import Instant
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, POD_DISRUPTION_BUDGET, Kind
from hostler.kube.records import Node, Pod, PodConditionType, PodDisruptionBudget

T = TypeVar("T")
# Finds an object by `namespace/name`; None: there is none.
Find: TypeAlias = Callable[[str], T | None]
# An object that came and did not decode, by its kind and key; None: it was read, or there is none.
FindUnreadable: TypeAlias = Callable[[Kind, str], Unreadable | None]


@dataclass(frozen=True, slots=True)
class View:
    """A cluster as far as ingress goes."""

    ingress: IngressConfig | None
    infrastructure: Infrastructure | None
    controller: Find[IngressController]
    deployment: Find[Placed]
    daemon_set: Find[Placed]
    budget: Find[PodDisruptionBudget]
    pods: Iterable[Pod]
    nodes: tuple[Node, ...]
    policy: IngressPolicy
    image: str = ""  # of routers that are created
    openshift: bool = True  # its kinds are served here
    unreadable: FindUnreadable = lambda _, __: None

    def cluster(self, backfill: bool) -> ClusterFacts:
        key = f"{CONTROLLERS_IN}/{DEFAULT}"
        return ClusterFacts(
            ingress=self.unreadable(INGRESS, CLUSTER) or self.ingress,
            infrastructure=self.unreadable(INFRASTRUCTURE, CLUSTER) or self.infrastructure,
            default=self.unreadable(INGRESS_CONTROLLER, key) or self.controller(key),
            nodes=self.nodes,
            label=self.policy.control_plane_label,
            backfill=backfill,
            openshift=self.openshift,
        )

    def workload(self, asked: IngressWorkload) -> Placed | Unreadable | None:
        """A workload that the Fleet names, as it is."""
        key, daemon_set = f"{asked.namespace}/{asked.name}", asked.kind == "DaemonSet"
        found = self.daemon_set(key) if daemon_set else self.deployment(key)
        return self.unreadable(DAEMON_SET if daemon_set else DEPLOYMENT, key) or found

    def rules(self) -> Policy:
        """What the owner set. A new router has the Fleet's template, else an image and our template."""
        template: Mapping[str, object] | None = self.policy.router_template
        refusal = check_template(template)
        if refusal is not None:
            return Policy(self.policy.control_plane_label, None, refusal)
        if template is None and (image := self.image or self._image_in_use()):
            template = router_template(image)
        return Policy(self.policy.control_plane_label, template)

    def _image_in_use(self) -> str:
        """The default router's image, and only that: a copy of the whole would serve its certificates and names."""
        router = self.deployment(f"{ROUTERS_IN}/{router_name(DEFAULT)}")
        found = router.spec.template.spec.containers if router is not None else ()
        return next((one.image for one in found if one.name == "router"), "")


def facts_of(
    view: View,
    controller: IngressController,
    addresses: Fact[tuple[str, ...]] | None,
    since: Mapping[str, Instant] | None = None,
    reverts: tuple[Revert, ...] = (),
) -> Facts:
    """The facts about one IngressController. `addresses`: where its wildcard name points; None: not looked up."""
    key = f"{ROUTERS_IN}/{router_name(controller.metadata.name)}"
    router = view.deployment(key)
    pods = pods_of(view.pods, router)
    return Facts(
        controller=controller,
        ingress=view.ingress,
        infrastructure=view.infrastructure,
        nodes=view.nodes,
        router=router,
        budget=view.budget(key),
        pods=pods,
        pointing=_pointing(view, controller, pods, addresses),
        since=since,
        reverts=reverts,
        unreadable=_first_unreadable(view, key),
    )


def _first_unreadable(view: View, router: str) -> Unreadable | None:
    looked = ((INGRESS, CLUSTER), (INFRASTRUCTURE, CLUSTER), (DEPLOYMENT, router), (POD_DISRUPTION_BUDGET, router))
    return next((found for kind, key in looked if (found := view.unreadable(kind, key)) is not None), None)


def domain_of(controller: IngressController, ingress: IngressConfig | None) -> str:
    """The name below which the router answers."""
    said = controller.spec.domain or controller.status.domain
    return said or (ingress.spec.domain if ingress is not None else "")


def pods_of(pods: Iterable[Pod], workload: Placed | None) -> tuple[Pod, ...]:
    """The pods of one workload, by its selector, in order of their names."""
    if workload is None:
        return ()
    namespace, selector = workload.metadata.namespace, workload.spec.selector
    found = (pod for pod in pods if pod.metadata.namespace == namespace and matches(selector, pod.metadata.labels))
    return tuple(sorted(found, key=lambda pod: pod.metadata.name))


def pods_counted(workload: Placed | None) -> tuple[int, int]:
    """How many pods a Deployment or DaemonSet has available, and how many it wants."""
    if workload is None:
        return 0, 0
    status, replicas = workload.status, workload.spec.replicas
    wanted = replicas if replicas is not None else status.desired_number_scheduled
    return max(status.available_replicas, status.number_available), wanted


def ready(pod: Pod) -> bool:
    return not pod.metadata.deletion_timestamp and any(
        one.type is PodConditionType.READY and one.status == "True" for one in pod.status.conditions
    )


def _pointing(
    view: View, controller: IngressController, pods: tuple[Pod, ...], addresses: Fact[tuple[str, ...]] | None
) -> Pointing | None:
    if addresses is None or view.infrastructure is None:
        return None
    running = {pod.spec.node_name for pod in pods if ready(pod) and pod.spec.node_name}
    published = publishing(controller, view.infrastructure)
    return pointing(domain_of(controller, view.ingress), published, addresses, view.nodes, running)

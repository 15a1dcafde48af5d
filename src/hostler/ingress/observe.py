"""What ingress reads: caches, the name of a router by the resolver, and from these the facts of one decision."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from hostler.apis.fleet import NAME, IngressPolicy, IngressWorkload
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.drain.selector import matches
from hostler.host.facts import Fact, Known, Unknown, age
from hostler.host.reverts import Revert, RevertLog
from hostler.ingress.cluster_defaults import ClusterFacts
from hostler.ingress.conditions import GRACE, PROBE, Pointing, judge_wildcard
from hostler.ingress.decide import Facts, Policy, router_name
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, DEFAULT, ROUTERS_IN, Decision, Placed, Unreadable
from hostler.ingress.placement import publishing
from hostler.ingress.placement_patch import digest_of
from hostler.ingress.refusals import check_template, key_of_workload, router_template
from hostler.instant import Instant
from hostler.kube.cache import Unread, first_unread
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, POD_DISRUPTION_BUDGET, Kind
from hostler.kube.records import Node, Pod, PodConditionType, PodDisruptionBudget
from hostler.kube.watch import Watch
from hostler.safety.guard import FleetWatch


@dataclass(frozen=True, slots=True)
class Caches:
    """What ingress reads. Pods, budgets, nodes and the Fleet are shared with the other capabilities."""

    ingress: Watch[IngressConfig]
    infrastructure: Watch[Infrastructure]
    controllers: Watch[IngressController]
    deployments: Watch[Placed]
    daemon_sets: Watch[Placed]
    budgets: Watch[PodDisruptionBudget]
    pods: Watch[Pod]
    nodes: Watch[Node]
    fleet: FleetWatch

    @property
    def by_kind(self) -> dict[Kind, Watch[Any]]:
        """The watches of everything that decides or is written."""
        return {watch.kind: watch for watch in (*self.own(), self.budgets)}

    def unreadable(self, kind: Kind, key: str) -> Unreadable | None:
        """An object that came and did not decode."""
        why = self.by_kind[kind].store.unreadable.get(key)
        return Unreadable(kind, key, why) if why is not None else None

    def own(self) -> Iterator[Watch[Any]]:
        """The watches that only ingress needs."""
        yield from (self.ingress, self.infrastructure, self.controllers, self.deployments, self.daemon_sets)

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.budgets, self.pods, self.nodes))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)


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
        return next((container.image for container in found if container.name == "router"), "")


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
    pods = pods_of_workload(view.pods, router)
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
    domain = controller.spec.domain or controller.status.domain
    return domain or (ingress.spec.domain if ingress is not None else "")


def pods_of_workload(pods: Iterable[Pod], workload: Placed | None) -> tuple[Pod, ...]:
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


def is_ready(pod: Pod) -> bool:
    return not pod.metadata.deletion_timestamp and any(
        condition.type is PodConditionType.READY and condition.status == "True" for condition in pod.status.conditions
    )


def _pointing(
    view: View, controller: IngressController, pods: tuple[Pod, ...], addresses: Fact[tuple[str, ...]] | None
) -> Pointing | None:
    if addresses is None or view.infrastructure is None:
        return None
    running = {pod.spec.node_name for pod in pods if is_ready(pod) and pod.spec.node_name}
    published = publishing(controller, view.infrastructure)
    return judge_wildcard(domain_of(controller, view.ingress), published, addresses, view.nodes, running)


FRESH_SECONDS = 60.0
PATIENCE_SECONDS = 5.0


class NameLookup:
    """Remembers one answer per domain. A resolver that does not answer is no answer, never an empty one."""

    def __init__(self, clock: Callable[[], Instant] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Instant, Fact[tuple[str, ...]]]] = {}

    def last(self, domain: str) -> Fact[tuple[str, ...]]:
        found = self._known.get(domain)
        return found[1] if found is not None else Unknown("it was not looked up yet")

    async def look(self, domain: str) -> Fact[tuple[str, ...]]:
        """The answer, looked up again if the last one is old."""
        now = self._clock()
        found = self._known.get(domain)
        if found is None or age(Known(None, found[0]), now) > FRESH_SECONDS:
            self._known[domain] = (now, await resolve_name(f"{PROBE}.{domain}", now))
        return self._known[domain][1]


async def resolve_name(name: str, now: Instant) -> Fact[tuple[str, ...]]:
    """Every address of a name, as this machine resolves it."""
    loop = asyncio.get_running_loop()
    try:
        asked = loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        answers = await asyncio.wait_for(asked, PATIENCE_SECONDS)
    except TimeoutError:
        return Unknown(f"{name} was not resolved within {PATIENCE_SECONDS:g} s")
    except (OSError, UnicodeError) as error:
        return Unknown(f"{name} does not resolve from here ({error})")
    return Known(tuple(sorted({str(answer[4][0]) for answer in answers})), now)


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator's settings say."""

    backfill: bool = False
    image: str = ""
    check_wildcard: bool = True
    workloads: frozenset[str] = frozenset()  # that may be placed without the label of their owner


class Observer:
    """What is known now: from caches, the resolver, and what this process has seen."""

    def __init__(
        self,
        caches: Caches,
        options: Options,
        clock: Callable[[], Instant] = time.time,
        lookup: NameLookup | None = None,
    ) -> None:
        self.caches, self.options, self.clock = caches, options, clock
        self.reverts = RevertLog()
        self.untrue_since: dict[str, dict[str, Instant]] = {}  # IngressController -> condition -> when we saw it untrue
        self._lookup = lookup or NameLookup(clock)

    def policy(self) -> IngressPolicy:
        fleet = self.caches.fleet.store.get(NAME)
        return fleet.spec.ingress if fleet is not None else IngressPolicy()

    def workloads(self) -> Iterator[tuple[str, IngressWorkload]]:
        for asked in self.policy().workloads:
            yield key_of_workload(asked), asked

    def view(self) -> View:
        caches = self.caches
        return View(
            ingress=caches.ingress.store.get(CLUSTER),
            infrastructure=caches.infrastructure.store.get(CLUSTER),
            controller=caches.controllers.store.get,
            deployment=caches.deployments.store.get,
            daemon_set=caches.daemon_sets.store.get,
            budget=caches.budgets.store.get,
            pods=caches.pods.store.values(),
            nodes=tuple(caches.nodes.store),
            policy=self.policy(),
            image=self.options.image,
            openshift=not (caches.controllers.absent or caches.ingress.absent),
            unreadable=caches.unreadable,
        )

    def addresses(self, controller: IngressController, view: View) -> Fact[tuple[str, ...]] | None:
        """Where the wildcard name of a router points; None: that is not checked."""
        if not self.options.check_wildcard:
            return None
        if view.policy.wildcard_addresses:
            return Known(view.policy.wildcard_addresses, self.clock())
        return self._lookup.last(domain_of(controller, view.ingress))

    async def look_up(self, domain: str, view: View) -> None:
        """Ask the resolver, unless the Fleet says where the name points."""
        if domain and self.options.check_wildcard and not view.policy.wildcard_addresses:
            await self._lookup.look(domain)

    def reverts_now(self, key: str, decision: Decision, now: Instant) -> tuple[Revert, ...]:
        """The reverts so far, and the one that is seen now."""
        assert decision.placement is not None
        return self.reverts.seen_at(key, digest_of(decision.placement), now)

    def remember_untrue(self, controller: IngressController) -> None:
        """Since when we ourselves have seen a condition untrue: instants of another machine are not compared."""
        untrue = {condition.type for condition in controller.status.conditions if condition.status != "True"}
        known = self.untrue_since.setdefault(controller.metadata.name, {})
        for type in GRACE:
            if type in untrue:
                known.setdefault(type, self.clock())
            else:
                known.pop(type, None)

"""Join as the operator sees it: its watches, its controller, what wakes it, what it explains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from hostler.apis.capi import cluster_of_node
from hostler.capability import Capability
from hostler.explain.registry import Explainer, Explanation, Registry
from hostler.host.conditions import Condition
from hostler.join import settings as setting
from hostler.join.controller import KEY, JoinReconciler
from hostler.join.host_layers import JoinSource
from hostler.join.invitations import OLDER, SOURCES
from hostler.join.model import SIGNING_REQUEST, USED, Policy, SigningRequest
from hostler.join.observe import SOURCE_INDEXES, Caches, Memory, clusters_of
from hostler.join.rules import canonical
from hostler.join.served_certificate import ServedCertificates
from hostler.join.spoke_follower import LARGEST_ANSWER, Hub, Standing
from hostler.join.spoke_followers import MOST_SPOKES, TIMEOUT, Spokes, cluster_watches
from hostler.join.status import HubReport, SpokeMetrics, explain_request
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client, Gate
from hostler.kube.clusters import Clusters
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.settings.foundation import NAMESPACE
from hostler.settings.model import Settings
from hostler.shared import Shared, Writers

# Requests come in bursts, and a rival may be in the same one.
SOON, LATER = 0.2, 1.0
# Approvals of certificate requests per second, at most; in a burst twice as many.
WRITES_PER_SECOND = 200.0
SPOKE_WRITES_PER_SECOND = 20.0  # the same in each further cluster


def policy_of(settings: Settings, server: str) -> Policy:
    """What the settings say; `server` is the URL of the API server as we reach it."""
    clusters: tuple[str, ...] = settings[setting.JOIN_CLUSTERS]
    return Policy(
        settings[setting.JOIN_BOOTSTRAPPERS],
        window=settings[setting.JOIN_WINDOW_SECONDS],
        serving=settings[setting.JOIN_SERVING],
        slack=settings[setting.JOIN_PENDING_SLACK],
        api_server=canonical(urlsplit(server).hostname or ""),
        clusters=frozenset(clusters),
        inventories=inventories_of(settings[setting.JOIN_INVENTORIES]),
    )


def inventories_of(listed: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Namespaces by kind, of `KIND=NAMESPACE`; `KIND=*` is every namespace.

    A kind that is not listed keeps its default: to limit one kind does not open another.
    """
    found: dict[str, set[str]] = {}
    for kind, _, namespace in (entry.partition("=") for entry in (*listed, *_unlisted(listed))):
        found.setdefault(kind, set()).add(namespace)
    return {kind: frozenset(those) for kind, those in found.items() if "*" not in those}


def _unlisted(listed: tuple[str, ...]) -> tuple[str, ...]:
    named = {entry.partition("=")[0] for entry in listed}
    return tuple(entry for entry in setting.JOIN_INVENTORIES.default if entry.partition("=")[0] not in named)


def _spoke_writers(writers: Writers) -> Callable[[Client], Writer]:
    """Makes the writer for a further cluster, with the same gates and a budget of its own.

    What a spoke refuses or throttles says nothing about our rights here, nor about the hub's load: counted apart.
    """
    apart = replace(writers, metrics=Metrics())
    rate = SPOKE_WRITES_PER_SECOND
    return lambda client: apart.of("join", WriteBudget(rate, 2 * int(rate)), client)


class JoinCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, metrics, settings, nodes = shared.client, shared.metrics, shared.settings, shared.nodes
        # A budget of its own: a rack of hosts coming up together must neither wait for other writes nor delay them.
        writer = shared.writers.of("join", WriteBudget(WRITES_PER_SECOND, 2 * int(WRITES_PER_SECOND)))
        namespace = settings[NAMESPACE]
        self._caches = Caches(
            requests=Watch(client, SIGNING_REQUEST, SigningRequest, metrics=metrics),
            sources={
                kind: Watch(client, kind, record, metrics=metrics, versions=OLDER.get(kind, ()), indexes=SOURCE_INDEXES)
                for kind, record in SOURCES.items()
            },
            memory=Watch(
                client, CONFIG_MAP, Memory, metrics=metrics, namespace=namespace, fields=f"metadata.name={USED}"
            ),
            nodes=nodes,
            fleet=shared.fleet,
            namespace=namespace,
        )
        policy = policy_of(settings, client.connection.server)
        self._report = HubReport(shared.recorder, metrics, shared.changed)
        certificates = ServedCertificates(client, settings[setting.JOIN_KUBELET_CA])
        self._reconciler = JoinReconciler(self._caches, writer, self._report, policy, certificates)
        self.controller = self.add_controller("join", self._reconciler.reconcile)
        self._spokes: Spokes | None = None
        if named := settings[setting.JOIN_SPOKES]:
            clusters = Clusters(client, most=MOST_SPOKES, idle=60.0, timeout=TIMEOUT, largest=LARGEST_ANSWER)
            hub = Hub(
                clusters, self._caches.sources, shared.fleet, policy, _spoke_writers(shared.writers), shared.as_leader,
                shared.recorder, metrics, Metrics(), SpokeMetrics(metrics),
            )  # fmt: skip
            watches = cluster_watches(client, metrics)
            self._spokes = Spokes(
                watches, named, lambda: clusters_of(nodes.store.values(), policy), hub, shared.changed
            )

    def watches(self) -> Iterator[Watch[Any]]:
        yield from self._caches.own()
        if self._spokes is not None:
            yield from self._spokes.watches.values()

    def conditions(self) -> Sequence[Condition]:
        """What the Fleet's status says of us."""
        return (*self._report.conditions, *(self._spokes.conditions if self._spokes is not None else ()))

    def host_source(self, cluster: str) -> JoinSource:
        return JoinSource(self._reconciler, cluster, time.time)

    def wake_all(self) -> None:
        self.controller.queue.add(KEY)
        if self._spokes is not None:
            self._spokes.wake_all()

    async def run(self) -> None:
        await (self._spokes.run() if self._spokes is not None else super().run())

    async def finish(self) -> None:
        if self._spokes is not None:
            await self._spokes.finish()

    async def close(self) -> None:
        if self._spokes is not None:
            await self._spokes.close()

    def listen(self) -> None:
        """Anything that can change a verdict; what is decided or gone may end a rivalry or a flood."""
        self._caches.requests.store.listen(self._request_changed)
        self._caches.memory.store.listen(lambda *_: self.controller.queue.add(KEY, after=LATER))
        for watch in self._caches.sources.values():
            watch.store.listen(lambda *_: self.controller.queue.add(KEY, after=SOON))
        self._caches.nodes.store.listen(self._node_changed)
        if self._spokes is not None:
            self._spokes.listen()
        self.wake_all()

    def _request_changed(self, _: str, before: SigningRequest | None, after: SigningRequest | None) -> None:
        self.controller.queue.add(KEY, after=SOON if before is None and after is not None else LATER)

    def _node_changed(self, _: str, before: Node | None, after: Node | None) -> None:
        if before is None or after is None or _counts(before) != _counts(after):
            self.controller.queue.add(KEY, after=SOON)

    # -- explaining

    def register(self, registry: Registry, gate: Gate) -> None:
        def explain(name: str) -> Explanation | None:
            if "/" in name:
                return self._explain_spoke(name, gate() or "")
            decision = self._reconciler.decision
            return explain_request(name, decision, gate() or "") if name in decision.verdicts else None

        registry.add(Explainer("certificatesigningrequest", "join", explain, explain))
        registry.add(Explainer("csr", "join", explain, explain))

    def _explain_spoke(self, name: str, held_back: str) -> Explanation | None:
        """A request of a further cluster, named NAMESPACE/CLUSTER/REQUEST."""
        cluster, _, csr = name.rpartition("/")
        if self._spokes is None:
            return None
        if (found := self._spokes.decision(cluster, csr)) is not None:
            return explain_request(csr, found[1], held_back, found[0])
        for spoke, standing, why in self._spokes.standing(cluster):
            if standing is not Standing.FOLLOWED:
                return Explanation("join", f"Requests of {spoke} are not judged now: {standing}. {why}".rstrip())
        return None


def _counts(node: Node) -> tuple[object, ...]:
    """What of a node can change a verdict; heartbeats cannot."""
    return node.status.addresses, cluster_of_node(node)

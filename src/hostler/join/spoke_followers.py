"""The followers of all spokes: which of the hub's clusters have one, and what is reported about all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog

from hostler.apis.assisted import CLUSTER_DEPLOYMENT, Agent, ClusterDeployment
from hostler.apis.capi import CLUSTER, OLDER, Cluster
from hostler.host.conditions import Condition, Status, count, cut, names
from hostler.join.model import Decision
from hostler.join.spoke_follower import SOON, Follower, Hub, Standing
from hostler.join.spokes import ClusterObject, Spoke, choose_spokes
from hostler.kube.client import Client
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.watch import Watch

log = structlog.get_logger("hostler.join")

MOST_SPOKES = 100  # each has three connections; what is kept of them in memory has a limit of its own
TIMEOUT = 10.0  # seconds for one answer of a spoke
TOGETHER = 1.0  # seconds: clusters that change together are one look, and one that comes and goes cannot do it faster
FOLLOWED = "JoinSpokesFollowed"


def cluster_watches(client: Client, metrics: Metrics) -> dict[Kind, Watch[ClusterObject]]:
    return {
        CLUSTER: Watch(client, CLUSTER, Cluster, metrics=metrics, versions=OLDER),
        CLUSTER_DEPLOYMENT: Watch(client, CLUSTER_DEPLOYMENT, ClusterDeployment, metrics=metrics),
    }


class Spokes:
    """Keeps a follower for every cluster that is named and there."""

    def __init__(
        self,
        watches: dict[Kind, Watch[ClusterObject]],
        named: Sequence[str],
        ourselves: Callable[[], frozenset[str]],
        hub: Hub,
        changed: Callable[[], None],
    ) -> None:
        """`ourselves`: the names of the hub itself. `changed` is called when the condition changed."""
        self.watches = watches
        self.conditions: tuple[Condition, ...] = ()
        self._named, self._ourselves, self._hub, self._changed = frozenset(named), ourselves, hub, changed
        self._followers: dict[Spoke, tuple[Follower, asyncio.Task[None]]] = {}
        self._too_many: list[Spoke] = []
        self._due = asyncio.Event()
        self._ending = False

    def listen(self) -> None:
        for watch in self.watches.values():
            watch.store.listen(self._cluster_changed)
        for watch in self._hub.sources.values():
            watch.store.listen(self._host_changed)

    def wake_all(self) -> None:
        self._due.set()
        for follower in self._all():
            follower.wake()

    def decision(self, cluster: str, csr: str) -> tuple[Spoke, Decision] | None:
        """What was decided last in the cluster NAMESPACE/NAME, if it is about that request."""
        for follower in self._all():
            if follower.spoke.key == cluster and csr in follower.decision.verdicts:
                return follower.spoke, follower.decision
        return None

    def standing(self, cluster: str) -> list[tuple[Spoke, Standing, str]]:
        return [
            (follower.spoke, follower.standing, follower.why)
            for follower in self._all()
            if follower.spoke.key == cluster
        ]

    async def run(self) -> None:
        for watch in self.watches.values():
            await watch.synced.wait()
        while True:
            self._due.clear()
            await self._follow_named()
            self._tell()
            await self._due.wait()
            await asyncio.sleep(TOGETHER)

    async def finish(self) -> None:
        """End them all; what they have begun is finished first."""
        self._ending = True
        await self._end(list(self._followers))

    async def close(self) -> None:
        await self._hub.clusters.close()

    # -- which are followed

    async def _follow_named(self) -> None:
        found = ((kind, cluster) for kind, watch in self.watches.items() for cluster in watch.store)
        wanted = choose_spokes(found, self._named, self._ourselves())
        await self._hub.clusters.sweep()
        await self._end([spoke for spoke in self._followers if spoke not in wanted])
        new = [spoke for spoke in wanted if spoke not in self._followers]
        room = max(0, MOST_SPOKES - len(self._followers)) if not self._ending else 0
        self._too_many = new[room:]
        for spoke in new[:room]:
            follower = Follower(spoke, self._hub, self._due.set)
            self._followers[spoke] = (follower, asyncio.create_task(follower.run(), name=f"spoke {spoke}"))
            log.info("following a spoke", spoke=str(spoke), secret=f"{spoke.namespace}/{spoke.secret}")

    async def _end(self, spokes: Sequence[Spoke]) -> None:
        tasks = []
        for spoke in spokes:
            _, task = self._followers.pop(spoke)
            task.cancel()
            tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        left = {spoke.key for spoke in self._followers}
        for spoke in spokes:
            log.info("no longer following a spoke", spoke=str(spoke))
            if spoke.key not in left:
                self._hub.by_cluster.forget(spoke.key)

    def _all(self) -> Iterator[Follower]:
        yield from [follower for follower, _ in self._followers.values()]

    # -- what wakes what

    def _cluster_changed(self, key: str, before: ClusterObject | None, after: ClusterObject | None) -> None:
        if before is None or after is None or before.spec != after.spec or _differs(before, after):
            self._due.set()
        for follower in self._all():
            if follower.spoke.key == key:
                follower.retry()

    def _host_changed(self, key: str, before: Any, after: Any) -> None:
        """Only the spokes that the host can be for, and of these only those with a request that waits."""
        near = {key.partition("/")[0]}
        for host in (before, after):
            if isinstance(host, Agent) and host.spec.cluster_deployment_name is not None:
                near.add(host.spec.cluster_deployment_name.namespace)
        for follower in self._all():
            if follower.spoke.namespace in near:
                follower.wake(SOON, waiting_only=True)

    # -- telling

    def _tell(self) -> None:
        condition = self._condition()
        if self.conditions != (condition,):
            self.conditions = (condition,)
            self._changed()

    def _condition(self) -> Condition:
        away = [
            f"{follower.spoke.key} ({follower.standing})"
            for follower in self._all()
            if follower.standing is not Standing.FOLLOWED
        ]
        away += [f"{spoke.key} ({MOST_SPOKES} others are followed, which is the limit)" for spoke in self._too_many]
        followed = sum(follower.standing is Standing.FOLLOWED for follower in self._all())
        if away:
            said = f"{count(followed, 'cluster')} followed. Certificate requests of nodes wait in {names(away)}."
            return Condition(type=FOLLOWED, status=Status.FALSE, reason="NotFollowed", message=cut(said))
        said = f"Certificate requests of nodes are followed in {count(followed, 'further cluster')}."
        return Condition(type=FOLLOWED, status=Status.TRUE, reason="AsExpected", message=said)


def _differs(before: ClusterObject, after: ClusterObject) -> bool:
    """In what decides whether it is followed."""
    return (before.metadata.uid, before.metadata.deletion_timestamp, before.metadata.annotations) != (
        after.metadata.uid, after.metadata.deletion_timestamp, after.metadata.annotations,
    )  # fmt: skip

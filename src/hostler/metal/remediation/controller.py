"""Keeps Metal3Remediations: observe, decide, write; on the host here and on the node in its own cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from prometheus_client import Counter

from hostler.apis import metal3
from hostler.apis.metal3 import BareMetalHost
from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.host.taints import out_of_service
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.clusters import Unavailable
from hostler.kube.errors import NotFound, Unreachable
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import NODE, POD, VOLUME_ATTACHMENT
from hostler.kube.records import Node, Object, VolumeAttachment, key_of
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.claiming.claims import DEBOUNCE_SECONDS
from hostler.metal.model import cluster_of, held_by, owner_key
from hostler.metal.remediation.decide import LOOK_SECONDS, count_from_step, decide_remediation
from hostler.metal.remediation.model import (
    HOST_UNHEALTHY,
    BoundPod,
    NodeOut,
    Remediation,
    RemediationFacts,
    Step,
    taint_patch,
)
from hostler.metal.toolbox import Toolbox


class Power:
    """Follows the hosts that are kept off, by the annotation that does so."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # The annotation -> when its host's word counts. By our own clock: after a restart it begins again.
        self._from: dict[str, float] = {}

    def host_changed(self, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        was = held_by(before) if before is not None else ()
        now = held_by(after) if after is not None else ()
        for name in set(was) - set(now):
            self._from.pop(name, None)
        was_on = before is not None and before.status.powered_on
        went_off = was_on and after is not None and not after.status.powered_on
        for name in now:
            if name not in self._from:
                self._from[name] = self._clock() + DEBOUNCE_SECONDS
            elif name in was and went_off:
                self._from[name] = self._clock()  # after it was asked to

    def fresh(self, name: str) -> bool:
        return self._clock() >= self._from.get(name, float("inf"))


class RemediationReconciler:
    """Reconciles one Metal3Remediation per call."""

    def __init__(
        self,
        tools: Toolbox,
        *,
        shaky: Callable[[str], bool],
        stepped: Callable[[Instant], Instant] = lambda now: 0.0,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shaky`: whether a host (by its key) had an error a moment ago. `ticks` is for spans, the clock for dates,
        `stepped` for when that was last set forward."""
        self.caches, self._tools, self.power = tools.caches, tools, Power(ticks)
        self._clock, self._ticks, self._stepped, self._shaky = tools.clock, ticks, stepped, shaky
        self._silent: dict[str, float] = {}  # remediation -> since when its cluster has not answered
        self._told: dict[str, tuple[str, str]] = {}  # remediation -> its last event
        text = "Steps of remediations, by the reason of their event."
        self._steps = Counter("hostler_metal_remediation_steps", text, ("step",), registry=tools.metrics.registry)
        self._steps.labels(HOST_UNHEALTHY)  # there as 0, so that Prometheus sees the first one

    def facts(self, remediation: Remediation) -> RemediationFacts:
        caches = self.caches
        owner = caches.capi_machines.store.get(owner_key(remediation.metadata, "Machine"))
        machine = caches.machine_of(owner) if owner is not None else None
        cluster = None
        if machine is not None:
            key = names.key(machine.metadata.namespace, cluster_of(machine, owner))
            cluster = caches.capi_clusters.store.get(key)
        host = caches.own_host(machine) if machine is not None else None
        held = tuple(caches.hosts.store.by("held", remediation.power_off))
        fresh = self.power.fresh(remediation.power_off) and (host is None or not self._shaky(key_of(host.metadata)))
        unreadable = caches.unreadable_host(machine) if machine is not None else ""
        return RemediationFacts(
            count_from_step(remediation, self._stepped(self._clock())), owner, machine, cluster, host, held,
            unreadable=unreadable, fresh=fresh,
        )  # fmt: skip

    async def reconcile(self, key: str) -> float | None:
        if self.caches.unread():
            return UNREAD_SECONDS
        remediation = self.caches.remediations.store.get(key)
        if remediation is None:
            return None
        facts = self.facts(remediation)
        step = decide_remediation(facts, self._clock())
        if step.look:
            facts = replace(facts, node=self._patiently(key, await self._look(facts)))
            step = decide_remediation(facts, self._clock())
        await self._act(facts, step)
        if self._tools.writer.dry_run and step.wake is not None:
            return max(step.wake, LOOK_SECONDS)  # nothing comes of what it says, so there is no hurry
        return step.wake

    def forget(self, key: str) -> None:
        """The remediation is gone; the next may have its name."""
        self._silent.pop(key, None)
        self._told.pop(key, None)

    # -- the node

    def _patiently(self, key: str, node: NodeOut) -> NodeOut:
        """With the time for which its cluster has not answered, as far as we have asked."""
        if not node.why:
            self._silent.pop(key, None)
            return node
        return replace(node, silent=self._ticks() - self._silent.setdefault(key, self._ticks()))

    async def _look(self, facts: RemediationFacts) -> NodeOut:
        name = facts.owner.status.node_ref.name if facts.owner is not None else ""
        if not name or facts.cluster is None:
            return NodeOut()  # it never had a node: there is nothing to put out of service
        meta = facts.cluster.metadata
        async with self._tools.clusters.client(meta.namespace, f"{meta.name}-kubeconfig") as client:
            if isinstance(client, Unavailable):
                return NodeOut(why=client.discreet or client.why)
            try:
                node = await client.get(NODE, name, type=Node)
                return NodeOut(node, await _left_on(client, name) if out_of_service(node) else ())
            except NotFound:
                return NodeOut()
            except FAILURES as error:
                return NodeOut(why=f"{describe_failure(error)}.")

    async def _taint(self, facts: RemediationFacts, on: bool, why: str) -> None:
        node = facts.node.node if facts.node is not None else None
        assert node is not None
        assert facts.cluster is not None
        meta = facts.cluster.metadata
        async with self._tools.clusters.client(meta.namespace, f"{meta.name}-kubeconfig") as client:
            if isinstance(client, Unavailable):
                raise Unreachable(client.discreet or client.why)
            await self._tools.writer_for(client).patch(
                NODE, node.metadata.name, taint_patch(node, facts.remediation, on), type=Object, why=why
            )

    # -- writing

    async def _act(self, facts: RemediationFacts, step: Step) -> None:
        if step.taint is not None:
            await self._taint(facts, step.taint, step.why)
        for write in step.writes:
            try:
                await self._tools.send(write)
            except NotFound:
                continue  # a host, a machine or the remediation itself that is gone needs nothing any more
        key, news = key_of(facts.remediation.metadata), (step.event, step.why)
        if step.event and self._told.get(key) != news:
            self._told[key] = news
            self._tools.recorder.event(
                metal3.METAL3_REMEDIATION, facts.remediation.metadata, "Warning" if step.warning else "Normal",
                step.event, "Remediate", step.why,
            )  # fmt: skip
            if not self._tools.writer.dry_run and (step.writes or step.taint is not None):
                self._steps.labels(step.event).inc()

    def of_host(self, host: BareMetalHost) -> list[str]:
        """The remediations that a change of this host may concern."""
        found = {
            key_of(one.metadata) for name in held_by(host) for one in self.caches.remediations.store.by("power", name)
        }
        if len(self.caches.remediations.store):
            consumer = host.spec.consumer_ref
            machine = (
                self.caches.machines.store.get(names.key(consumer.namespace, consumer.name))
                if consumer is not None
                else None
            )
            owner = owner_key(machine.metadata, "Machine") if machine is not None else ""
            found |= self.caches.remediations.store.keys_by("owner", owner)
        return sorted(found)


async def _left_on(client: Client, name: str) -> tuple[str, ...]:
    """What has not let go of a node that is out of service: pods that do not tolerate that, and volumes."""
    pods = await client.list(POD, type=BoundPod, fields=f"spec.nodeName={name}")
    found = [f"pod {key_of(pod.metadata)}" for pod in pods if pod.metadata.deletion_timestamp or not _stays(pod)]
    volumes = await client.list(VOLUME_ATTACHMENT, type=VolumeAttachment)
    found += [
        f"volume {one.spec.source.persistent_volume_name or one.metadata.name}"
        for one in volumes
        if one.spec.node_name == name
    ]
    return tuple(found)


def _stays(pod: BoundPod) -> bool:
    return any(
        one.key in ("", OUT_OF_SERVICE) and one.effect in ("", "NoExecute") for one in pod.spec.tolerations
    )  # fmt: skip

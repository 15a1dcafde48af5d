"""Keeps Metal3Machines: observe, decide, write. The order of the writes is what makes a crash between them harmless."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from hostler.apis import metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.kube.errors import Conflict, Invalid, NotFound
from hostler.kube.kinds import SECRET
from hostler.kube.records import is_deleted, key_of
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.claiming.choose import Wish
from hostler.metal.claiming.claims import Claims
from hostler.metal.data.controller import DataReconciler
from hostler.metal.decide import decide_machine
from hostler.metal.model import Decision, Facts, MakeMovable, NodeSeen, Said, Step, Write
from hostler.metal.moving import movable_write
from hostler.metal.nodes import NodeFinder
from hostler.metal.simulate import Rules
from hostler.metal.status import Troubles, conditions_without_host, is_settled, status_write
from hostler.metal.toolbox import Toolbox

log = structlog.get_logger("hostler.metal")

# A missing BMC secret shows on the host sooner or later; this is for the case that it does not.
SECRET_LOOK_SECONDS = 60.0
# What the API server's schema refuses is tried again by itself only rarely: who mends it changes the machine.
REFUSED_SECONDS = 300.0


class MachineReconciler:
    """Reconciles one Metal3Machine per call."""

    def __init__(
        self, tools: Toolbox, claims: Claims, data: DataReconciler, nodes: NodeFinder, *, fast_track: bool = False
    ) -> None:
        self.caches, self.claims = tools.caches, claims
        self._tools, self._data, self._nodes, self._fast_track = tools, data, nodes, fast_track
        self.troubles = Troubles(time.monotonic)
        self._leads = True
        self._gone: dict[str, str] = {}  # machines that may go, by key: their uids
        self._nodes_seen: dict[str, NodeSeen] = {}  # what the last look for a machine's node found, for people to read
        self.secretless: dict[str, str] = {}  # a BMC secret that is missing -> the machine that says so
        registry = tools.metrics.registry
        self._claimed = Counter("hostler_metal_claims", "Hosts claimed.", registry=registry)
        self._waiting = Gauge("hostler_metal_waiting", "Machines that wait for a host.", registry=registry)

    async def reconcile(self, key: str) -> float | None:
        if why := self.caches.unread():
            log.debug("not looking yet", key=key, why=str(why))
            return UNREAD_SECONDS
        machine = self.caches.machines.store.get(key)
        if machine is None:
            self.claims.forget(key)
            self._gone.pop(key, None)
            self._nodes_seen.pop(key, None)
            return None
        if self._gone.get(key) == machine.metadata.uid:
            return None  # it lost its last finalizer; the cache will see it go in a moment
        try:
            return await self._look(machine)
        except Invalid as refusal:
            message = f"The API server refuses what this machine asks for: {refusal}"
            said = Said(names.ASSOCIATED, False, "Refused", message)
            await self._status(machine, conditions_without_host(self.facts(machine), said), {})
            return REFUSED_SECONDS
        finally:
            self.claims.looked(key)
            self._measure()

    def led(self, held: bool) -> None:
        """We have begun to lead, or no longer do: then who waits for a host is another's to say."""
        self._leads = held
        self._measure()

    def _measure(self) -> None:
        self._waiting.set(len(self.claims.waiting) if self._leads else 0)

    def facts(self, machine: Metal3Machine) -> Facts:
        facts = self._data.add_facts(self.caches.facts(machine))
        if facts.host is not None:
            facts = replace(facts, trouble=self.troubles.of(facts.host))
        return facts

    def explained_facts(self, machine: Metal3Machine) -> Facts:
        """For `explain`, which asks no workload cluster: with what the operator's last look for the node found."""
        return replace(self.facts(machine), node=self._nodes_seen.get(key_of(machine.metadata)))

    @property
    def rules(self) -> Rules:
        """By what a machine's course is decided, for `plan`."""
        return Rules(self.claims.policy, self._fast_track, self.claims.around)

    def decide(self, facts: Facts) -> Decision:
        """What comes next for a machine; the operator, `explain` and `plan` all ask this."""
        return decide_machine(facts, fast_track=self._fast_track)

    async def _look(self, machine: Metal3Machine) -> float | None:
        facts = self.facts(machine)
        decision = self.decide(facts)
        if decision.step is not Step.CLAIM:
            self.claims.waiting.remove(key_of(machine.metadata))
        match decision.step:
            case Step.MOVED:
                return None
            case Step.PAUSED:
                return await self._pause(facts, decision)
            case Step.UNREADABLE:
                return await self._wait(facts, decision)
        if decision.unpause:
            facts = await self._unpause(facts, decision.unpause)
            decision = self.decide(facts)  # the host has another version now
        if decision.make_movable is not None:
            await self._make_movable(facts, decision.make_movable)
        match decision.step:
            case Step.RELEASE:
                return await self._release(facts, decision)
            case Step.WAIT:
                return await self._wait(facts, decision)
            case Step.CLAIM if decision.wish is not None:
                return await self._claim(facts, decision.wish)
        return await self._keep(facts, decision)

    # -- a machine without a host

    async def _claim(self, facts: Facts, wish: Wish) -> float | None:
        facts, decision = await self.claims.take(facts, wish)
        if not decision.writes:
            return await self._wait(facts, decision)
        if facts.associated:  # else a dry run: the claim was only logged
            self._claimed.inc()
            about = facts.machine.metadata
            self._tools.recorder.event(metal3.METAL3_MACHINE, about, "Normal", "HostChosen", "Claim", decision.why)
        # The claim has queued it again (`capability.py` hears of the host), behind those that have none yet: a thousand
        # hosts begin to be installed before the first machine has its whole status.
        return None

    async def _wait(self, facts: Facts, decision: Decision) -> float | None:
        await self._status(facts.machine, decision.said, decision.status)
        return decision.wake

    # -- a machine with its host

    async def _keep(self, facts: Facts, decision: Decision) -> float | None:
        """Write what is decided, find the node, and decide again on what came of both."""
        tried = decision.writes
        # Before its cluster is asked, which may take long: without block-move the host could be moved meanwhile.
        after = await self._carry_out(facts, decision.writes)
        host = after.host
        if host is not None and host.state == "provisioned" and not is_settled(after.machine):
            infrastructure = self.caches.clusters.store.get(self._infrastructure(after))
            cloud = infrastructure is not None and infrastructure.spec.cloud_provider_enabled
            node = await self._nodes.find(after.machine, host, after.cluster_name, cloud_provider=cloud)
            self._nodes_seen[key_of(after.machine.metadata)] = node
            after = replace(after, node=node)
        if after is not facts:
            decision = self.decide(after)
            # The host has had its write: what the server did not keep of it would only conflict.
            rest = tuple(one for one in decision.writes if one not in tried and one.kind != metal3.BARE_METAL_HOST)
            after = await self._carry_out(after, rest)
        await self._status(after.machine, decision.said, decision.status)
        return SECRET_LOOK_SECONDS if after.secret_problem else decision.wake

    async def _carry_out(self, facts: Facts, writes: tuple[Write, ...]) -> Facts:
        """The facts after these writes; a BMC secret that does not exist is one of them."""
        for write in writes:
            try:
                written = await self._write(write)
            except NotFound:
                if write.kind != SECRET or facts.host is None:
                    raise
                where = f"{write.namespace}/{write.name}"
                self.secretless[where] = key_of(facts.machine.metadata)
                problem = f"The BMC secret {where} of host {facts.host.metadata.name} does not exist."
                facts = replace(facts, secret_problem=problem)
                continue
            if isinstance(written, BareMetalHost):
                facts = replace(facts, host=written)
            elif isinstance(written, Metal3Machine):
                facts = replace(facts, machine=written)
        return facts

    def _infrastructure(self, facts: Facts) -> str:
        reference = facts.cluster.spec.infrastructure_ref if facts.cluster is not None else None
        return names.key(facts.machine.metadata.namespace, reference.name) if reference is not None else ""

    # -- a machine that goes

    async def _release(self, facts: Facts, decision: Decision) -> float | None:
        for write in decision.writes:
            try:
                await self._write(write)
            except NotFound:
                continue  # a secret, a host or the machine itself that is gone needs nothing any more
        if decision.said:
            await self._status(facts.machine, decision.said, {})
        return decision.wake

    # -- pause

    async def _pause(self, facts: Facts, decision: Decision) -> float | None:
        """The cluster is paused: so is the host, with its status kept for whoever moves it."""
        if decision.make_movable is not None:
            await self._make_movable(facts, decision.make_movable)
        await self._status(facts.machine, decision.said, {})
        return None

    async def _make_movable(self, facts: Facts, wanted: MakeMovable) -> None:
        assert facts.host is not None
        meta = facts.host.metadata
        # Read again: our record has only part of the status, and another party may have paused it a moment ago.
        whole = await self._tools.client.get(metal3.BARE_METAL_HOST, meta.name, meta.namespace, type=dict[str, Any])
        write = movable_write(whole, facts.machine.metadata, wanted)
        if write is not None:
            await self._write(write)

    async def _unpause(self, facts: Facts, writes: tuple[Write, ...]) -> Facts:
        """Take our pause back, with a fresh read of the Cluster before the last write.

        `clusterctl move` pauses the Cluster and then looks for block-move. So the host is blocked first, while it is
        still paused: a Cluster that is paused before our read is seen by us, and one that is paused after it waits.
        """
        *first, last = writes
        facts = await self._carry_out(facts, tuple(first))
        assert facts.cluster is not None
        assert facts.host is not None
        about, version = facts.cluster.metadata, facts.host.metadata.resource_version
        try:
            fresh = await self.caches.capi_clusters.read(self._tools.client, about.name, about.namespace)
        except NotFound:
            raise Conflict(409, "Conflict", f"Cluster {key_of(about)} is gone by now") from None
        facts = replace(facts, cluster=fresh)
        again = self.decide(facts)
        if again.step is Step.PAUSED:
            if again.make_movable is not None:
                await self._make_movable(facts, again.make_movable)
            raise Conflict(409, "Conflict", f"Cluster {key_of(about)} is paused by now")
        return await self._carry_out(facts, (replace(last, version=version),))

    # -- writing

    async def _write(self, write: Write) -> Any:
        """One write; what the object is now is shown at once. None in a dry run."""
        after = await self._tools.send(write)
        if isinstance(after, Metal3Machine) and is_deleted(after.metadata):
            self._gone[key_of(after.metadata)] = after.metadata.uid
        return after

    async def _status(self, machine: Metal3Machine, said: tuple[Said, ...], fields: dict[str, Any]) -> None:
        write = status_write(machine, said, fields, self._tools.clock())
        if write is not None:
            await self._write(write)

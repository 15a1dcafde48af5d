"""Keeps Metal3Machines: observe, decide, write. The order of the writes is what makes a crash between them harmless."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, Invalid, NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object, key_of
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import Caches
from hostler.metal.capi import Cluster
from hostler.metal.choose import Choice
from hostler.metal.claims import Claims
from hostler.metal.data import DataDesk
from hostler.metal.decide import FAILED, HOST_LOST, Facts, decide, host_write, settled, status_change, why_none
from hostler.metal.decision import Decision, Said, Write
from hostler.metal.health import Troubles
from hostler.metal.model import Host, Metal3Machine
from hostler.metal.moving import is_movable, is_moved_away, pause_change, unpause_change
from hostler.metal.nodes import Nodes
from hostler.metal.release import ELSEWHERE_SECONDS, PAUSED, decide_release, pauses
from hostler.metal.selector import WrongSelector
from hostler.metal.writes import send

log = structlog.get_logger("hostler.metal")

# The room wakes everything once all is read; this is only in case a cache was complete and is no more.
NOT_READY_SECONDS = 15.0
# A missing BMC secret shows on the host sooner or later; this is for the case that it does not.
SECRET_LOOK_SECONDS = 60.0
WAITING_SECONDS = 30.0  # a host that comes free wakes it; that the reason why none is there became another does not
UNREADABLE_SECONDS = 60.0  # that a host can be read again may wake nobody
# What the API server's schema refuses is tried again by itself only rarely: who mends it changes the machine.
REFUSED_SECONDS = 300.0
RECORDS: dict[str, type[Any]] = {names.HOST.plural: Host, names.METAL3_MACHINE.plural: Metal3Machine}


class MachineKeeper:
    """Reconciles one Metal3Machine per call."""

    def __init__(
        self,
        caches: Caches,
        claims: Claims,
        nodes: Nodes,
        client: Client,
        writer: Writer,
        recorder: Recorder,
        *,
        metrics: Metrics,
        data: DataDesk,
        fast_track: bool = False,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self.caches, self.claims = caches, claims
        self._nodes, self._client, self._writer, self._recorder = nodes, client, writer, recorder
        self._data, self._fast_track, self._clock = data, fast_track, clock
        self.troubles = Troubles(time.monotonic)
        self._leads = True
        self._gone: dict[str, str] = {}  # machines that may go, by key: their uids
        self.secretless: dict[str, str] = {}  # a BMC secret that is missing -> the machine that says so
        self._claimed = Counter("hostler_metal_claims", "Hosts claimed.", registry=metrics.registry)
        self._waiting = Gauge("hostler_metal_waiting", "Machines that wait for a host.", registry=metrics.registry)

    async def reconcile(self, key: str) -> float | None:
        if why := self.caches.unread():
            log.debug("not looking yet", key=key, why=why)
            return NOT_READY_SECONDS
        machine = self.caches.machines.store.get(key)
        if machine is None:
            self.claims.forget(key)
            self._gone.pop(key, None)
            return None
        if self._gone.get(key) == machine.metadata.uid:
            return None  # it lost its last finalizer; the cache will see it go in a moment
        try:
            return await self._look(machine)
        except Invalid as refusal:
            message = f"The API server refuses what this machine asks for: {refusal}"
            await self._say(self.facts(machine), Said(names.ASSOCIATED, False, "Refused", message))
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
        facts = self.caches.facts(machine)
        if facts.host is not None:
            facts = replace(facts, trouble=self.troubles.of(facts.host))
        if machine.spec.data_template is None:
            return facts
        return replace(facts, rendered=self._data.rendered(machine))

    async def _look(self, machine: Metal3Machine) -> float | None:
        facts = self.facts(machine)
        if is_moved_away(machine.metadata) or (facts.associated and facts.host and is_moved_away(facts.host.metadata)):
            self.claims.waiting.remove(key_of(machine.metadata))
            return None
        if pauses(facts):
            self.claims.waiting.remove(key_of(machine.metadata))
            return await self._pause(facts)
        if why := self.caches.unreadable_host(machine):
            self.claims.waiting.remove(key_of(machine.metadata))
            await self._say(facts, Said(names.ASSOCIATED, False, "HostUnreadable", why), keep_ready=True)
            return UNREADABLE_SECONDS
        facts = await self._unpause(facts)
        if facts.host is not None and names.PAUSED in facts.host.metadata.annotations:
            await self._make_movable(facts, "another party has paused it", pause=False)
        if machine.metadata.deletion_timestamp:
            self.claims.waiting.remove(key_of(machine.metadata))
            return await self._release(facts)
        if not facts.associated:
            waits = why_none(facts)
            if waits is not None:
                self.claims.waiting.remove(key_of(machine.metadata))
                await self._say(facts, waits)
                return ELSEWHERE_SECONDS if facts.elsewhere else None
            try:
                facts, choice = await self.claims.take(facts, self.caches.wish(facts))
            except WrongSelector as wrong:
                return await self._say(facts, Said(names.ASSOCIATED, False, "InvalidHostSelector", f"{wrong}."))
            if choice.host is None:
                await self._say(facts, Said(names.ASSOCIATED, False, FAILED, _sentence(choice.why)))
                return WAITING_SECONDS if choice.again is None else choice.again
            if facts.associated:
                self._claimed.inc()
                self._tell(facts, choice)
                # The claim has queued it again (`MetalRoom` hears of the host), behind those that have none yet: a
                # thousand hosts begin to be installed before the first machine has all its words.
                return None
        return await self._live(facts)

    # -- a machine without a host

    def _tell(self, facts: Facts, choice: Choice) -> None:
        note = _sentence(choice.why)
        self._recorder.event(names.METAL3_MACHINE, facts.machine.metadata, "Normal", "HostChosen", "Claim", note)

    async def _say(self, facts: Facts, said: Said, *, keep_ready: bool = False) -> float | None:
        """That it has no host, or what hinders us. What hinders only us makes no machine less ready that is a node."""
        kept = settled(facts.machine) and (keep_ready or facts.associated)
        ready = () if kept else (Said(names.READY, False, said.reason, said.message),)
        # A host that is gone reports no error any more, and is not healthy for that.
        health = (replace(said, type=names.HEALTHY),) if said.reason == HOST_LOST else ()
        await self._status(facts.machine, (said, *ready, *health, _unpaused()), {})
        return None

    # -- a machine with its host

    async def _live(self, facts: Facts) -> float | None:
        host, machine = facts.host, facts.machine
        if host is None or not facts.associated:
            return None  # a dry run: what would be claimed was said
        self.claims.waiting.remove(key_of(machine.metadata))
        facts = await self._named(facts)
        facts = await self._label_secret(facts)
        await self._data.ask(facts)
        # Before its cluster is asked, which may take long: without block-move the host could be moved meanwhile.
        if (write := host_write(facts, host)) is not None:
            host = await self._write(write) or host
            facts = replace(facts, host=host)
        if host.state == "provisioned" and not settled(machine):
            infrastructure = self.caches.clusters.store.get(self._infrastructure(facts))
            cloud = infrastructure is not None and infrastructure.spec.cloud_provider_enabled
            facts = replace(facts, node=await self._nodes.find(machine, host, facts.cluster_name, cloud_provider=cloud))
        decision = decide(facts)
        machine = await self._act(tuple(one for one in decision.writes if one.kind != names.HOST), facts.machine)
        await self._status(machine, (*decision.said, _unpaused()), decision.status)
        return SECRET_LOOK_SECONDS if facts.secret_problem else decision.wake

    def _infrastructure(self, facts: Facts) -> str:
        reference = facts.cluster.spec.infrastructure_ref if facts.cluster is not None else None
        return names.key(facts.machine.metadata.namespace, reference.name) if reference is not None else ""

    async def _named(self, facts: Facts) -> Facts:
        """A machine that has its host but does not name it (found by consumerRef): write both down."""
        meta, host = facts.machine.metadata, facts.host
        assert host is not None
        change: dict[str, Any] = {}
        if facts.named_host != key_of(host.metadata):
            change["annotations"] = {names.HOST_ANNOTATION: key_of(host.metadata)}
        if names.MACHINE_FINALIZER not in meta.finalizers:
            change["finalizers"] = [*meta.finalizers, names.MACHINE_FINALIZER]
        if not change:
            return facts
        why = f"host {host.metadata.name} is its own"
        write = Write(
            names.METAL3_MACHINE, meta.name, meta.namespace, {"metadata": change}, why, version=meta.resource_version
        )
        return replace(facts, machine=await self._write(write) or facts.machine)

    async def _label_secret(self, facts: Facts) -> Facts:
        """The cluster's label on the BMC secret, right after the claim; that it is there is said by the condition."""
        host = facts.host
        said = next((one for one in facts.machine.status.conditions if one.type == names.ASSOCIATED), None)
        secret = host.spec.bmc.credentials_name if host is not None and facts.cluster_name else ""
        if host is None or not secret or (said is not None and said.status == "True"):
            return facts
        known = self.caches.secrets.store.get(names.key(host.metadata.namespace, secret))
        if known is not None and known.metadata.labels.get(names.CLUSTER_NAME) == facts.cluster_name:
            return facts
        body = {"metadata": {"labels": {names.CLUSTER_NAME: facts.cluster_name}}}
        why = f"the BMC of host {host.metadata.name} belongs to this cluster"
        try:
            await self._write(Write(SECRET, secret, host.metadata.namespace, body, why))
        except NotFound:
            where = f"{host.metadata.namespace}/{secret}"
            self.secretless[where] = key_of(facts.machine.metadata)
            return replace(facts, secret_problem=f"The BMC secret {where} of host {host.metadata.name} does not exist.")
        return facts

    # -- a machine that goes

    async def _release(self, facts: Facts) -> float | None:
        if not facts.elsewhere:  # else its addresses are in use, for as long as it takes
            await self._data.let_go(facts.machine)
        decision = self.decide_release(facts)
        for write in decision.writes:
            try:
                await self._write(write)
            except NotFound:
                continue  # a secret, a host or the machine itself that is gone needs nothing any more
        if decision.said:
            await self._status(facts.machine, decision.said, {})
        return decision.wake

    def decide_release(self, facts: Facts) -> Decision:
        """What comes next for a machine that is being deleted; the operator, `explain` and `plan` all ask this."""
        # What was written before a crash is not written again: else it could happen there again and again.
        host = facts.host
        name = names.key(host.metadata.namespace, host.spec.bmc.credentials_name) if host is not None else ""
        secret = self.caches.secrets.store.get(name)
        clear = secret is not None and names.CLUSTER_NAME not in secret.metadata.labels
        return decide_release(replace(facts, secret_clear=clear), fast_track=self._fast_track)

    # -- pause

    async def _pause(self, facts: Facts) -> float | None:
        """The cluster is paused: so is the host, with its status kept for whoever moves it."""
        await self._make_movable(facts, f"Cluster {facts.cluster_name} is paused", pause=True)
        await self._status(facts.machine, (PAUSED,), {})
        return None

    async def _make_movable(self, facts: Facts, why: str, *, pause: bool) -> None:
        host = facts.host
        if host is None or not facts.associated or is_movable(host):
            return
        meta = host.metadata
        # Read again: our record has only part of the status, and another party may have paused it a moment ago.
        whole = await self._client.get(names.HOST, meta.name, meta.namespace, type=dict[str, Any])
        change = pause_change(whole, facts.machine.metadata, pause=pause)
        if change:
            version = str(whole["metadata"]["resourceVersion"])
            await self._write(Write(names.HOST, meta.name, meta.namespace, change, why, version=version))

    async def _unpause(self, facts: Facts) -> Facts:
        """Take our pause back in two writes, with a fresh read of the Cluster between them.

        `clusterctl move` pauses the Cluster and then looks for block-move. So the host is blocked first, while it is
        still paused: a Cluster that is paused before our read is seen by us, and one that is paused after it waits.
        """
        host, cluster = facts.host, facts.cluster
        change = unpause_change(host) if host is not None and facts.associated and cluster is not None else {}
        if not change or host is None or cluster is None:
            return facts
        about, meta = cluster.metadata, host.metadata
        if names.BLOCK_MOVE not in meta.annotations:
            why = "it is about to lose its pause and must not be moved then"
            blocked = {"metadata": {"annotations": {names.BLOCK_MOVE: ""}}}
            write = Write(names.HOST, meta.name, meta.namespace, blocked, why, version=meta.resource_version)
            host = await self._write(write) or host
            facts, meta = replace(facts, host=host), host.metadata
        try:
            fresh = await self._client.get(names.CLUSTER, about.name, about.namespace, type=Cluster)
        except NotFound:
            raise Conflict(409, "Conflict", f"Cluster {key_of(about)} is gone by now") from None
        if fresh.spec.paused:
            self.caches.capi_clusters.store.overlay(fresh)
            await self._make_movable(facts, f"Cluster {facts.cluster_name} is paused", pause=True)
            raise Conflict(409, "Conflict", f"Cluster {key_of(about)} is paused by now")
        why = f"Cluster {facts.cluster_name} is not paused any more"
        write = Write(names.HOST, meta.name, meta.namespace, change, why, version=meta.resource_version)
        return replace(facts, host=await self._write(write) or host)

    # -- writing

    async def _act(self, writes: tuple[Write, ...], machine: Metal3Machine) -> Metal3Machine:
        for write in writes:
            after = await self._write(write)
            if isinstance(after, Metal3Machine):
                machine = after
        return machine

    async def _write(self, write: Write) -> Any:
        """One write; what the object is now is shown at once. None in a dry run."""
        after = await send(self._writer, write, RECORDS.get(write.kind.plural, Object))
        if isinstance(after, Host):
            self.caches.hosts.store.overlay(after)
        elif isinstance(after, Metal3Machine):
            if after.metadata.deletion_timestamp and not after.metadata.finalizers:
                self._gone[key_of(after.metadata)] = after.metadata.uid
                return after  # gone: the cache must not see it again
            self.caches.machines.store.overlay(after)
        return after

    async def _status(self, machine: Metal3Machine, said: tuple[Said, ...], fields: dict[str, Any]) -> None:
        change = status_change(machine, said, fields, self._clock())
        if not change:
            return
        meta = machine.metadata
        why = next((one.message or one.reason for one in said if one.type == names.READY), said[0].message)
        await self._write(Write(names.METAL3_MACHINE, meta.name, meta.namespace, change, why, subresource="status"))


def _unpaused() -> Said:
    return Said(names.PAUSED_CONDITION, False, "NotPaused")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

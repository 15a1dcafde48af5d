"""What is done in the old cluster: look at the node, put the agent on it, take everything off again.

Each call may be repeated at any point, and after any half of it. What another host needs is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostler.drain.executor import Executor
from hostler.drain.model import Evict, Memory, Policy
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.holds import Change, Patch, Refusal, place, release
from hostler.kube.client import FIELD_MANAGER, Client, How
from hostler.kube.errors import NotFound, WriteRefused
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
)
from hostler.kube.records import Metadata, Node, Object, Record
from hostler.kube.writer import Writer
from hostler.reclaim.agent_manifests import (
    HOST_LABEL,
    MANAGED,
    NAMESPACE_NAME,
    PER_HOST,
    SHARED,
    Manifest,
    Order,
    list_manifests,
)
from hostler.reclaim.identity import HOLDER, control_plane_without, spoke_node
from hostler.reclaim.model import ControlPlane, Leaving, SpokeNode, SpokeObject
from hostler.reclaim.quoting import clean_text, quote_text, word_or_quote

# What a cluster puts into every namespace: bundles of certificates, service accounts (three of them OpenShift) and
# their Secrets.
CLUSTERS_OWN = "-ca.crt"
CLUSTERS_ACCOUNTS = frozenset({"default", "builder", "deployer"})
OF_ACCOUNT = "kubernetes.io/service-account.name"
ADMISSION = "pod-security.kubernetes.io/enforce"
# Kinds that show that another party uses a namespace.
THEIRS = (
    POD, CONFIG_MAP, SECRET, SERVICE_ACCOUNT, DAEMON_SET, DEPLOYMENT,
    Kind("apps", "v1", "statefulsets", "StatefulSet", True),
    Kind("batch", "v1", "jobs", "Job", True),
    Kind("batch", "v1", "cronjobs", "CronJob", True),
    PERSISTENT_VOLUME_CLAIM, SERVICE,
)  # fmt: skip
LOOK_AGAIN = 5.0  # seconds until it is looked whether a killed agent is there again
BUILT_FOR = "reclaim.hostler.dev/built-for"


class ContainerState(Record, frozen=True):
    running: dict[str, Any] | None = None
    terminated: dict[str, Any] | None = None


class ContainerStatus(Record, frozen=True):
    state: ContainerState = ContainerState()
    restart_count: int = 0


class AgentPodStatus(Record, frozen=True):
    container_statuses: tuple[ContainerStatus, ...] = ()


class AgentPod(Record, frozen=True):
    """The agent's pod, as far as one sees there whether the agent runs."""

    metadata: Metadata = Metadata()
    status: AgentPodStatus = AgentPodStatus()


class Occupied(Exception):
    """What we would write belongs to another party (another host, an unreadable hold). The text says which."""


class NotYet(Exception):
    """Something is still going, or coming; it is looked at again in so many seconds."""

    def __init__(self, why: str, seconds: float = 1.0) -> None:
        super().__init__(why)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Deployed:
    """Whether anything was written, and what there is to say of it."""

    wrote: bool
    remark: str = ""


class SpokeExecutor:
    def __init__(self, client: Client, writer: Writer, clock: Callable[[], float] = time.time) -> None:
        """`writer` writes to that cluster, behind the same gate as every other write of ours."""
        self._client, self._writer, self._clock = client, writer, clock
        self._deleted = 0

    # -- looking

    async def node(self, name: str) -> Fact[SpokeNode | None]:
        try:
            found = await self._client.get(NODE, name, type=Node)
        except NotFound:
            return Known(None, self._clock())
        except FAILURES as error:
            return Unknown(describe_failure(error))
        seen = spoke_node(found)
        return Known(seen, self._clock()) if seen.name == name else Unknown("it answered with another object")

    async def control_plane(self, own: str, leaving: Leaving) -> Fact[ControlPlane]:
        try:
            nodes = await self._client.list(NODE, type=Node)
        except FAILURES as error:
            return Unknown(describe_failure(error))
        return Known(control_plane_without(own, map(spoke_node, nodes), leaving), self._clock())

    async def remains(self, host_uid: str) -> Fact[frozenset[SpokeObject]]:
        """Objects of this host, and, where no other host needs them, those that hosts share."""
        try:
            own = await self._labelled(f"{HOST_LABEL}={host_uid}")
            others = [key for key in await self._labelled(HOST_LABEL) if key not in own]
            shared = {} if others else await self._shared()
            pods = await self._pods(host_uid)
        except FAILURES as error:
            return Unknown(describe_failure(error))
        found = (*own, *shared, *((POD, pod.metadata.name) for pod in pods))
        return Known(frozenset(SpokeObject(kind.plural, word_or_quote(name)) for kind, name in found), self._clock())

    async def is_openshift(self) -> bool:
        """Whether privileged pods need a SecurityContextConstraint there."""
        try:
            await self._client.request("GET", "/apis/security.openshift.io/v1")
        except NotFound:
            return False
        return True

    # -- acting

    async def deploy(self, order: Order) -> Deployed:
        """Everything the agent needs is there after this; what is there for this boot already is not written again."""
        wrote, remark = False, ""
        why = f"host {order.host} is returned to discovery from node {order.node.name}"
        for manifest in list_manifests(order):
            there = await self._there(manifest)
            if there is not None and there.metadata.deletion_timestamp:
                raise NotYet(f"{manifest.kind.kind} {manifest.name} is still being deleted.")
            built = f"{order.host_uid}/{order.node.boot_id}/{order.key}"
            if there is not None:
                owner = there.metadata.labels.get(HOST_LABEL, "")
                if owner and owner != order.host_uid:
                    raise Occupied(f"{manifest.kind.kind} {manifest.name} is there for another host.")
                if not owner and manifest.kind in PER_HOST:
                    raise Occupied(
                        f"{manifest.kind.kind} {manifest.name} in {NAMESPACE_NAME} belongs to another party; remove it."
                    )
                if manifest.kind is NAMESPACE:
                    remark = _check_admission(there.metadata.labels)
                # A token is new on every call: only a new boot of the node, or a new signing key, is a reason
                # to write again.
                if not owner or there.metadata.annotations.get(BUILT_FOR) == built:
                    continue
            body = {**manifest.body, "metadata": {**manifest.body["metadata"], "annotations": {BUILT_FOR: built}}}
            await self._writer.patch(
                manifest.kind, manifest.name, body, manifest.namespace, type=Object, how=How.APPLY, why=why,
                manager=FIELD_MANAGER, force=True,
            )  # fmt: skip
            wrote = True
        return Deployed(wrote, remark)

    async def withdraw(self, host_uid: str, *, gone: bool, patient: bool = False, heard: bool = False) -> bool:
        """Take off what is there of this host, and with the last host what hosts share; whether anything was written.

        `gone`: no kubelet will confirm that the agent's pod has ended, so the pod is deleted without waiting for that.
        Else the agent has its time to take its boot entry back, and the namespace, which would wait for it while no
        other host could use it, goes with a later call. `patient`: an agent that was killed is let come up again, for
        only an agent takes its entry back. `heard`: there was one, so its pod may have gone with it.
        """
        why = "the reclaim has ended"
        before = self._deleted
        pods = await self._pods(host_uid)
        own = await self._labelled(f"{HOST_LABEL}={host_uid}")
        comes = heard and any(kind is DAEMON_SET for kind, _ in own) and not any(map(_at_work, pods))
        if patient and not gone and (comes or any(map(_was_killed, pods))):
            raise NotYet("The agent is being started again, and takes its boot entry back.", LOOK_AGAIN)
        for kind in reversed(PER_HOST):  # the agent first: its files are of use to it until it has ended
            for (found, name), uid in own.items():
                if found is kind:
                    await self._delete(kind, name, uid, why)
        for pod in pods if gone else ():
            await self._delete(POD, pod.metadata.name, pod.metadata.uid, why, grace_seconds=0)
        if not any(key not in own for key in await self._labelled(HOST_LABEL)):
            for (kind, name), uid in reversed((await self._shared()).items()):
                if kind is not NAMESPACE or gone or not pods:
                    await self._delete(kind, name, uid, why)
        return self._deleted > before

    async def hold(self, name: str, why: str) -> None:
        """Cordon the node in our name."""
        node = await self._client.get(NODE, name, type=Node)
        await self._change(node, place(node, HOLDER, why, self._clock()))

    async def release(self, name: str) -> None:
        """End our hold on the node, if it is still there."""
        try:
            node = await self._client.get(NODE, name, type=Node)
        except NotFound:
            return
        await self._change(node, release(node, HOLDER))

    async def evict(self, pods: tuple[Evict, ...], memory: Memory, policy: Policy) -> Memory:
        """Ask for evictions; the memory is for the next look."""
        done = await Executor(self._writer, self._clock).perform(pods, memory, policy)
        if done.stopped:
            raise WriteRefused(done.stopped)
        return done.memory

    async def remove_node(self, node: SpokeNode) -> None:
        await self._delete(NODE, node.name, node.uid, "its host is in discovery")

    async def _change(self, node: Node, change: Change) -> None:
        if isinstance(change, Refusal):
            raise Occupied(clean_text(change.why))
        if isinstance(change, Patch):
            await self._writer.patch(NODE, node.metadata.name, change.body, type=Node, why=change.why)

    async def _there(self, manifest: Manifest) -> Object | None:
        try:
            return await self._client.get(manifest.kind, manifest.name, manifest.namespace, type=Object)
        except NotFound:
            return None

    async def _labelled(self, selector: str) -> dict[tuple[Kind, str], str]:
        found: dict[tuple[Kind, str], str] = {}
        for kind in (SECRET, CONFIG_MAP, DAEMON_SET):
            for there in await self._client.list(kind, NAMESPACE_NAME, type=Object, labels=selector):
                found[(kind, there.metadata.name)] = there.metadata.uid
        return found

    async def _shared(self) -> dict[tuple[Kind, str], str]:
        """What hosts share and is ours by its label; a namespace that another party created is not."""
        found: dict[tuple[Kind, str], str] = {}
        for kind, name in ((NAMESPACE, NAMESPACE_NAME), *SHARED):
            there = await self._there(Manifest(kind, name, {}))
            if (
                there is None
                or there.metadata.deletion_timestamp
                or not MANAGED.items() <= there.metadata.labels.items()
            ):
                continue
            if kind is not NAMESPACE or not await self._others_live_there():
                found[(kind, name)] = there.metadata.uid
        return found

    async def _others_live_there(self) -> bool:
        """Whether another party uses our namespace: then it stays."""
        for kind in THEIRS:
            found = await self._client.list(kind, NAMESPACE_NAME, type=Object, labels=f"!{HOST_LABEL}")
            if any(not _is_of_cluster(kind, there) for there in found):
                return True
        return False

    async def _pods(self, host_uid: str) -> list[AgentPod]:
        return await self._client.list(POD, NAMESPACE_NAME, type=AgentPod, labels=f"{HOST_LABEL}={host_uid}")

    async def _delete(self, kind: Kind, name: str, uid: str, why: str, grace_seconds: int | None = None) -> None:
        namespace = NAMESPACE_NAME if kind.namespaced else None
        self._deleted += 1
        try:
            await self._writer.delete(kind, name, namespace, uid=uid, why=why, grace_seconds=grace_seconds)
        except NotFound:
            pass


def _was_killed(pod: AgentPod) -> bool:
    """Whether the agent ended without being told to, and its kubelet is to start it again."""
    return not _at_work(pod) and any(
        container.state.terminated is not None or container.restart_count > 0
        for container in pod.status.container_statuses
    )


def _at_work(pod: AgentPod) -> bool:
    """Whether the agent runs, or was told to end: either way it takes its boot entry back when it is to."""
    return bool(pod.metadata.deletion_timestamp) or any(
        container.state.running is not None for container in pod.status.container_statuses
    )


def _is_of_cluster(kind: Kind, there: Object) -> bool:
    """Ours, or what the cluster itself puts into every namespace."""
    if MANAGED.items() <= there.metadata.labels.items():
        return True
    match kind.plural:
        case "configmaps":
            return there.metadata.name.endswith(CLUSTERS_OWN)
        case "serviceaccounts":
            return there.metadata.name in CLUSTERS_ACCOUNTS
        case "secrets":
            return OF_ACCOUNT in there.metadata.annotations
    return False


def _check_admission(labels: dict[str, str]) -> str:
    """What there is to say of a namespace that was there already: a privileged pod has to be let in."""
    level = labels.get(ADMISSION)
    if level is not None and level != "privileged":
        raise Occupied(
            f"Namespace {NAMESPACE_NAME} lets no privileged pods in ({ADMISSION} is {quote_text(level, 60)}); change "
            "or remove it."
        )
    return (
        "" if level else f" Its namespace was there and has no label {ADMISSION}: if no pod comes, it needs privileged."
    )

"""The capability as the operator sees it: its watches, its controller, the hub's service, what it explains."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counts
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from hostler.apis.assisted import AGENT, INFRA_ENV, INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.capability import Capability
from hostler.errors import Complaint, Exit
from hostler.explain.registry import Registry
from hostler.kube.client import Client, Gate
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.kinds import POD
from hostler.kube.metrics import Family
from hostler.kube.records import Record
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.reclaim import settings as options
from hostler.reclaim.action_executor import ActionExecutor
from hostler.reclaim.artifacts import BootPolicy
from hostler.reclaim.controller import ReclaimController
from hostler.reclaim.explain import ReclaimExplainers
from hostler.reclaim.facts import PROGRESS, RECLAIMED, artifacts_of, hashes_of
from hostler.reclaim.host_layers import ReclaimSource
from hostler.reclaim.hub.agents import HubAgents
from hostler.reclaim.hub.connections import connection_limit
from hostler.reclaim.hub.keyring import Keyring
from hostler.reclaim.hub.listener import Listener
from hostler.reclaim.hub.server import Hub, open_artifacts
from hostler.reclaim.model import Policy, Reason, State
from hostler.reclaim.observe import Observer
from hostler.reclaim.old_clusters import SpokeClusters
from hostler.reclaim.status import EventReporter
from hostler.settings.foundation import NAMESPACE, POD_NAME
from hostler.settings.model import Settings
from hostler.shared import Shared

log = structlog.get_logger("hostler.reclaim")

TICK, SWEEP = 5.0, 60.0
KEY = "signing key"  # no Agent has such a key: theirs are namespace/name


class _Container(Record, frozen=True):
    image: str = ""


class _PodSpec(Record, frozen=True):
    containers: tuple[_Container, ...] = ()


class _OwnPod(Record, frozen=True):
    spec: _PodSpec = _PodSpec()


class ReclaimCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, settings, metrics = shared.client, shared.settings, shared.metrics

        def writer_for(other: Client) -> Writer:
            return shared.writers.of("reclaim", client=other)

        writer = writer_for(client)
        self._agents = Watch(
            client,
            AGENT,
            Agent,
            metrics=metrics,
            indexes={"infra_env": lambda agent: (_infra_env(agent),), "waiting": _waits_for_workers_of},
        )
        self._infra_envs = Watch(client, INFRA_ENV, InfraEnv, metrics=metrics)
        self._keyring = Keyring(client, writer, settings[NAMESPACE], metrics)
        inventories, boot = settings[options.RECLAIM_INVENTORIES], _boot_policy(settings)
        self._spokes = SpokeClusters(client, writer_for, inventories=frozenset(inventories))
        self._policy: Policy | None = None
        self._wished = _policy_of(shared, boot)
        answers = Family(
            Counter("hostler_hub_requests", "Answers of the hub.", ("call", "status"), registry=metrics.registry), 2
        )
        self._states = Family(
            Gauge("hostler_reclaim_hosts", "Hosts by state.", ("state",), registry=metrics.registry), 1
        )
        facts = shared.writers.of_any_replica("reclaim")  # what hosts report
        self._hub = Hub(
            HubAgents(client, facts, boot, self._infra_env), self._keyring.keys,
            open_artifacts(settings[options.HUB_ARTIFACTS], settings[options.HUB_URL]),
            connections=connection_limit(settings[options.HUB_CONNECTIONS]),
            answered=lambda call, status: answers.of(call, str(status)).inc(),
        )  # fmt: skip
        connected = Gauge("hostler_hub_connections", "Connections of hosts to the hub.", registry=metrics.registry)
        connected.set_function(lambda: len(self._hub.connections))
        dropped = Counter(
            "hostler_hub_connections_dropped",
            "Connections closed at the limit to admit another one.",
            registry=metrics.registry,
        )
        self._hub.connections.dropped = dropped.inc
        observer = Observer(self._agents, self._infra_envs, self._spokes, self._hub.files.served)
        reporter = EventReporter(shared.recorder, metrics)
        executor = ActionExecutor(client, observer, self._keyring, shared.recorder, _read_certificates(settings))
        self._agent_controller = ReclaimController(observer, executor, writer, reporter, lambda: self._policy)
        self.controller = self.add_controller("reclaim", self._reconcile, settings[options.RECLAIM_WORKERS])

    def watches(self) -> Iterator[Watch[Any]]:
        yield from (self._agents, self._infra_envs, self._keyring.watch)

    def register(self, registry: Registry, gate: Gate) -> None:
        ReclaimExplainers(self._agent_controller, gate, time.time).register(registry)

    def host_source(self, cluster: str) -> ReclaimSource:
        controller = self._agent_controller
        return ReclaimSource(self._agents.store, controller.seen, controller.policy, self.shared.nodes.store, cluster)

    async def _reconcile(self, key: str) -> float | None:
        return await (self._keyring.keep() if key == KEY else self._agent_controller.reconcile(key))

    def wake_all(self) -> None:
        self.controller.queue.add(KEY)
        for key in list(self._agents.store.keys()):
            self.controller.queue.add(key, priority=2)

    def listen(self) -> None:
        self._agents.store.listen(self._agent_changed)
        self._infra_envs.store.listen(self._infra_env_changed)
        self._keyring.watch.store.listen(lambda *_: self.controller.queue.add(KEY))
        self.controller.queue.add(KEY)

    def _agent_changed(self, key: str, before: Agent | None, after: Agent | None) -> None:
        if before is None or after is None or _decision_facts(before) != _decision_facts(after):
            self.controller.queue.add(key)
            for cluster in {cluster for agent in (before, after) for cluster in _cluster_left_by(agent)}:
                for waiting in self._agents.store.keys_by("waiting", cluster):
                    self.controller.queue.add(waiting)

    def _infra_env(self, key: str) -> InfraEnv | None:
        """As it is watched; None where the watch cannot be relied upon just now."""
        return self._infra_envs.store.get(key) if self._infra_envs.not_in_step() is None else None

    def _infra_env_changed(self, key: str, before: InfraEnv | None, after: InfraEnv | None) -> None:
        if before is not None and after is not None and _boot_facts(before) == _boot_facts(after):
            return
        for agent in self._agents.store.by("infra_env", key):
            self.controller.queue.add(f"{agent.metadata.namespace}/{agent.metadata.name}")

    # -- the hub's service

    async def run(self) -> None:
        """Serve hosts for as long as the operator runs: every replica does, whoever leads."""
        settings = self.shared.settings
        address = settings[options.HUB_ADDRESS]
        listener = Listener(
            self._hub, address.host, address.port, settings[options.HUB_CERTIFICATE], settings[options.HUB_KEY]
        )
        swept = time.monotonic()
        try:
            if not self.shared.writers.dry_run:  # a dry run could not write down what a host says
                await listener.start()
                log.info("serving the step API", address=str(address), port=listener.port)
            while True:
                if self._policy is None:
                    await self._know_image()
                await asyncio.sleep(TICK if self._policy is not None else 0.5)
                listener.renew()
                self._count()
                if time.monotonic() - swept > SWEEP:
                    swept = time.monotonic()
                    await self._spokes.sweep()
        finally:
            await listener.stop()

    async def close(self) -> None:
        await self._spokes.close()

    async def _know_image(self) -> None:
        """Agents run the operator's own image unless a setting names another."""
        image, pod = self._wished.image, self.shared.settings[POD_NAME]
        if not image and pod:
            try:
                own = await self.shared.client.get(POD, pod, self.shared.settings[NAMESPACE], type=_OwnPod)
                image = own.spec.containers[0].image if own.spec.containers else ""
            except NotFound:
                pass
            except (ApiError, Unreachable) as error:
                log.warning("our own pod cannot be read; AGENT_IMAGE would do instead", pod=pod, error=str(error))
                return
        self._policy = replace(self._wished, image=image)
        self.wake_all()

    def _count(self) -> None:
        found = Counts(agent.status.debug_info.state for agent in self._agents.store.values())
        for state in State:
            self._states.of(state).set(found[state])


def _infra_env(agent: Agent) -> str:
    return f"{agent.metadata.namespace}/{agent.metadata.labels.get(INFRA_ENV_LABEL, '')}"


def _policy_of(shared: Shared, boot: BootPolicy) -> Policy:
    settings = shared.settings
    return Policy(
        hub_url=settings[options.HUB_URL],
        image=settings[options.AGENT_IMAGE],
        reclaiming=settings[options.RECLAIM_TIMEOUT_SECONDS],
        rebooting=settings[options.RECLAIM_REBOOT_TIMEOUT_SECONDS],
        patience=settings[options.RECLAIM_PATIENCE_SECONDS],
        remove_node=settings[options.RECLAIM_REMOVE_NODE],
        drain=shared.drain if settings[options.RECLAIM_DRAIN] else None,
        require_one_shot=settings[options.RECLAIM_REQUIRE_ONE_SHOT],
        clean_boot=settings[options.RECLAIM_CLEAN_BOOT],
        boot=boot,
    )


def _boot_policy(settings: Settings) -> BootPolicy:
    hosts, arguments = settings[options.RECLAIM_ARTIFACT_HOSTS], settings[options.RECLAIM_KERNEL_ARGUMENTS]
    return BootPolicy(settings[options.HUB_URL], frozenset(hosts), frozenset(arguments))


def _boot_facts(infra_env: InfraEnv) -> tuple[object, ...]:
    """What of an InfraEnv can change a decision: whatever its hosts would boot."""
    return artifacts_of(infra_env), hashes_of(infra_env)


def _cluster_left_by(agent: Agent | None) -> tuple[str, ...]:
    note = agent.status.deprovision_info if agent is not None else None
    return (f"{note.cluster_namespace}/{note.cluster_name}",) if note is not None else ()


def _waits_for_workers_of(agent: Agent) -> tuple[str, ...]:
    """The cluster whose workers this host waits for."""
    waits = any(
        condition.type == RECLAIMED and condition.reason == Reason.WORKERS_FIRST
        for condition in agent.status.conditions
    )
    return _cluster_left_by(agent) if waits else ()


def _decision_facts(agent: Agent) -> tuple[object, ...]:
    """What of an Agent can change a decision; heartbeats and progress cannot."""
    status, meta = agent.status, agent.metadata
    notes = {name: value for name, value in meta.annotations.items() if name != PROGRESS}
    return (
        agent.spec, notes, meta.labels, meta.deletion_timestamp, meta.finalizers, status.debug_info.state,
        status.deprovision_info, status.progress.stage_start_time, status.inventory,
    )  # fmt: skip


def _read_certificates(settings: Settings) -> str:
    """The PEM text of HUB_CA, for agents."""
    place = settings[options.HUB_CA]
    if not place:
        return ""
    try:
        text = Path(place).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Complaint(
            f"HUB_CA {place} cannot be read: {error}.", hint="It is a PEM file.", code=Exit.SETTING
        ) from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Complaint(f"HUB_CA {place} has no certificate in it.", hint="It is a PEM file.", code=Exit.SETTING)
    return text

"""Looks for incumbents in the cluster and tells the guard. What it means is decided in `safety.incumbents`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog

from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION, DAEMON_SET, DEPLOYMENT, LEASE, Kind
from hostler.kube.records import Lease, Metadata, Record, Workload, WorkloadStatus
from hostler.safety.guard import Guard
from hostler.safety.incumbents import (
    Container,
    DeploymentSeen,
    Incumbent,
    LeaseSeen,
    Memory,
    Sighting,
    Signs,
    State,
    Trail,
    TrailSeen,
    Verdict,
    WebhookSeen,
    Where,
    judge,
    recognise,
    remember,
)
from hostler.safety.switches import CapabilityInfo

log = structlog.get_logger("hostler.incumbents")

EVERY_SECONDS = 60.0
AGAIN_SECONDS = 5.0  # while something is not known
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
_ADMISSION = "admissionregistration.k8s.io"
_WEBHOOKS = (
    Kind(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    Kind(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
)
_TRAIL_KINDS = {kind.resource: kind for kind in (DEPLOYMENT, DAEMON_SET)}


class _ManagedFields(Record, frozen=True):
    manager: str = ""
    time: str = ""


class _ManagedMetadata(Record, frozen=True):
    managed_fields: tuple[_ManagedFields, ...] = ()


class _Managed(Record, frozen=True):
    metadata: _ManagedMetadata = _ManagedMetadata()


class _Service(Record, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(Record, frozen=True):
    service: _Service | None = None


class _Webhook(Record, frozen=True):
    client_config: _ClientConfig | None = None


class _WebhookConfiguration(Record, frozen=True):
    metadata: Metadata = Metadata()
    webhooks: tuple[_Webhook, ...] | None = None


class _ConversionWebhook(Record, frozen=True):
    client_config: _ClientConfig | None = None


class _Conversion(Record, frozen=True):
    webhook: _ConversionWebhook | None = None


class _DefinitionSpec(Record, frozen=True):
    conversion: _Conversion | None = None


class _Definition(Record, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()


class _Variable(Record, frozen=True):
    name: str = ""


class _Container(Record, frozen=True):
    image: str = ""
    env: tuple[_Variable, ...] | None = None


class _PodSpec(Record, frozen=True):
    containers: tuple[_Container, ...] | None = None


class _Template(Record, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(Record, frozen=True):
    replicas: int | None = None
    template: _Template = _Template()


class _Deployment(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class _EndpointConditions(Record, frozen=True):
    ready: bool | None = None


class _Endpoint(Record, frozen=True):
    conditions: _EndpointConditions = _EndpointConditions()


class _EndpointSlice(Record, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None


async def look(client: Client, incumbent: Incumbent) -> Sighting:
    """One look at everything that could show this incumbent. A look that fails is named, never taken for absence."""
    deployments: list[DeploymentSeen] = []
    leases: list[LeaseSeen] = []
    trails: list[TrailSeen] = []
    webhooks: list[WebhookSeen] = []
    failed: list[str] = []
    # Begun one after the other: a stop in between must not leave coroutines that nobody awaits.
    looks: list[tuple[str, Callable[[], Awaitable[None]]]] = [
        *((f"Deployment {at}", partial(_deployments, client, at, deployments)) for at in incumbent.deployments),
        *((("Deployments", partial(_signs, client, incumbent.signs, deployments)),) if incumbent.signs else ()),
        *((f"Lease {at}", partial(_leases, client, at, leases)) for at in incumbent.leases),
        *((f"{trail.kind} {trail.at}", partial(_trails, client, trail, trails)) for trail in incumbent.trails),
        *(
            (f"webhooks of {at}", partial(_webhooks, client, at, incumbent, webhooks))
            for at in incumbent.webhook_services
        ),
    ]
    for what, looking in looks:
        try:
            await looking()
        except NotFound:
            continue  # the object, or its whole kind: known to be absent
        except (ApiError, Unreachable, msgspec.MsgspecError) as error:
            failed.append(f"{what} could not be read ({error})")
    return Sighting(tuple(deployments), tuple(leases), tuple(trails), tuple(webhooks), tuple(failed))


async def _deployments(client: Client, at: Where, found: list[DeploymentSeen]) -> None:
    if at.namespace:
        listed = [await client.get(DEPLOYMENT, at.name, at.namespace, type=Workload)]
    else:
        listed = await client.list(DEPLOYMENT, type=Workload, fields=f"metadata.name={at.name}")
    for one in listed:
        where = Where(one.metadata.namespace, one.metadata.name)
        replicas = 1 if one.spec.replicas is None else one.spec.replicas
        found.append(DeploymentSeen(where, replicas, one.status.ready_replicas))


async def _signs(client: Client, signs: Signs, found: list[DeploymentSeen]) -> None:
    """Every Deployment of the cluster, since it may have any name."""
    for one in await client.list(DEPLOYMENT, type=_Deployment):
        containers = [
            Container(each.image, tuple(variable.name for variable in each.env or ()))
            for each in one.spec.template.spec.containers or ()
        ]
        label = one.metadata.labels.get("app.kubernetes.io/name", "")
        sign = recognise(signs, one.metadata.name, label, containers)
        if sign:
            where = Where(one.metadata.namespace, one.metadata.name)
            replicas = 1 if one.spec.replicas is None else one.spec.replicas
            found.append(DeploymentSeen(where, replicas, one.status.ready_replicas, sign))


async def _leases(client: Client, at: Where, found: list[LeaseSeen]) -> None:
    lease = await client.get(LEASE, at.name, at.namespace, type=Lease)
    spec = lease.spec
    found.append(
        LeaseSeen(at, spec.holder_identity or "", spec.renew_time or "", float(spec.lease_duration_seconds or 0))
    )


async def _trails(client: Client, trail: Trail, found: list[TrailSeen]) -> None:
    kind = _TRAIL_KINDS[trail.kind]
    managed = await client.get(kind, trail.at.name, trail.at.namespace, type=_Managed)
    marks = [entry.time for entry in managed.metadata.managed_fields if entry.manager == trail.manager]
    if marks:
        found.append(TrailSeen(trail, max(marks)))


async def _webhooks(client: Client, at: Where, incumbent: Incumbent, found: list[WebhookSeen]) -> None:
    """Admission and conversion webhooks that point at this Service, and whether any endpoint stands behind it."""
    pointing: list[str] = []
    for kind in _WEBHOOKS:
        for made in await client.list(kind, type=_WebhookConfiguration):
            if any(_points(webhook.client_config, at) for webhook in made.webhooks or ()):
                pointing.append(f"{kind.kind} {made.metadata.name}")
    # One by one: a list of all CRDs is many megabytes in a cluster with many operators.
    for name in incumbent.definitions:
        if _points(await _converter(client, name), at):
            pointing.append(f"conversion of {name}")
    if not pointing:
        return
    slices = await client.list(
        ENDPOINT_SLICE, at.namespace, type=_EndpointSlice, labels=f"kubernetes.io/service-name={at.name}"
    )
    # `ready` left out means ready, as the API says.
    answered = any(endpoint.conditions.ready is not False for one in slices for endpoint in one.endpoints or ())
    found.extend(WebhookSeen(name, at, answered) for name in pointing)


async def _converter(client: Client, name: str) -> _ClientConfig | None:
    try:
        definition = await client.get(CUSTOM_RESOURCE_DEFINITION, name, type=_Definition)
    except NotFound:
        return None
    conversion = definition.spec.conversion
    return conversion.webhook.client_config if conversion and conversion.webhook else None


def _points(config: _ClientConfig | None, at: Where) -> bool:
    service = config.service if config else None
    return service is not None and Where(service.namespace, service.name) == at


class Lookout:
    """Looks again and again for the incumbents of the capabilities that are on, and tells the guard what it found."""

    def __init__(
        self, client: Client, guard: Guard, *, changed: Callable[[], None] | None = None, clock: Clock = boottime
    ) -> None:
        self._client = client
        self._guard = guard
        self._changed = changed or (lambda: None)
        self._clock = clock
        self._memories: dict[tuple[str, str], Memory] = {}

    async def run(self) -> None:
        """Look until cancelled: often while something is not known, else once a minute."""
        while True:
            due = await self.once()
            await asyncio.sleep(due)

    async def once(self) -> float:
        """One round over all capabilities that are on; in how many seconds the next is due."""
        due = EVERY_SECONDS
        for choice in self._guard.choices:
            if choice.on and choice.capability.incumbents:
                verdict = await self._judge(choice.capability)
                self._tell(choice.capability, verdict)
                if verdict.wake is not None:
                    due = min(due, max(verdict.wake, 1.0))
                if verdict.state is State.UNKNOWN:
                    due = min(due, AGAIN_SECONDS)
        return due

    async def _judge(self, capability: CapabilityInfo) -> Verdict:
        """The worst of the verdicts: found before unknown before absent."""
        verdicts: list[Verdict] = []
        for incumbent in capability.incumbents:
            sighting = await look(self._client, incumbent)
            now = self._clock()
            key = (capability.name, incumbent.name)
            self._memories[key] = remember(self._memories.get(key, Memory()), sighting, now)
            verdicts.append(judge(incumbent, sighting, self._memories[key], now))
        order = (State.FOUND, State.UNKNOWN, State.ABSENT)
        return min(verdicts, key=lambda verdict: order.index(verdict.state))

    def _tell(self, capability: CapabilityInfo, verdict: Verdict) -> None:
        before = self._guard.verdict(capability.name)
        self._guard.judged(capability.name, verdict)
        if before is None or before.state is not verdict.state:
            log.info("incumbent", capability=capability.name, state=verdict.state.value, why=verdict.why)
            self._changed()

"""The leader's work for a webhook server: the Secret with its certificates, and their CAs where requests come from."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import structlog

from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import Client, How
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Metrics
from hostler.kube.records import Secret
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.webhooks.certificates import (
    Kept,
    Pair,
    Step,
    bundle_authorities,
    decide_step,
    is_usable,
    make_pair,
    promote_next,
    read_kept,
    write_kept,
)
from hostler.webhooks.client_configs import Place, Target, bundle_patch, clients_in, is_injected

log = structlog.get_logger("hostler.webhooks")
Json = dict[str, Any]

CERT_MANAGER = "cert-manager.io/certificate-name"  # the annotation of a Secret that it keeps
# A CRD that is applied again loses its bundle, and so would its objects their other version: looked at this often.
LOOK_SECONDS, SOON_SECONDS = 20.0, 1.0


class Standing(StrEnum):
    """How a target stands. All but the first mean that requests do not come to us."""

    OURS = "ours"
    ELSEWHERE = "elsewhere"  # it sends its requests to another server, or none
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Setup:
    """What is kept where. `settle`: how long both CAs are in place before the next certificate is used."""

    secret: str
    place: Place
    targets: tuple[Target, ...]
    settle: float


@dataclass(slots=True)
class _Trusted:
    """Since when every target has had this bundle, by our own clock; a new leader counts anew."""

    bundle: str = ""
    since: float = 0.0


@dataclass(slots=True)
class CertificateKeeper:
    """`keep` is reconciled by the leader. What every replica reads is `current`."""

    client: Client
    writer: Writer
    metrics: Metrics
    setup: Setup
    now: Clock = time.time
    ticks: Clock = boottime
    standings: Mapping[Target, Standing] = field(default_factory=dict)
    _trusted: _Trusted = field(default_factory=_Trusted)
    _last: Kept = field(default_factory=Kept)
    watch: Watch[Secret] = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(
            self.client, SECRET, Secret, metrics=self.metrics, namespace=self.setup.place.namespace,
            fields=f"metadata.name={self.setup.secret}",
        )  # fmt: skip
        self.watch.store.listen(lambda _, __, after: self._seen(after))

    # -- what any replica reads

    def secret(self) -> Secret | None:
        return next(iter(self.watch.store), None)

    def current(self) -> Pair | None:
        """The certificate to serve; None: there is no Secret, or nothing in it that could be served."""
        secret = self.secret()
        return read_kept(secret.data).current if secret is not None else None

    @property
    def is_external(self) -> bool:
        """cert-manager keeps the Secret: we only read it."""
        secret = self.secret()
        return secret is not None and CERT_MANAGER in secret.metadata.annotations

    def _seen(self, secret: Secret | None) -> None:
        """Every replica remembers it: should it be deleted, whoever leads writes it again as it was."""
        kept = read_kept(secret.data) if secret is not None else Kept()
        if kept.current is not None:
            self._last = kept

    # -- the leader's

    def led(self) -> None:
        """What another leader wrote meanwhile is not known: the bundles are looked at anew."""
        self._trusted = _Trusted()

    async def keep(self) -> float:
        """One look; in how many seconds the next is due."""
        if not self.watch.store.synced:
            return UNREAD_SECONDS
        secret = self.secret()
        kept = read_kept(secret.data) if secret is not None else Kept()
        if not self.is_external:
            step = decide_step(kept, trusted=self._settled(kept), now=self.now())
            if step is not Step.KEEP:
                await self._store(self._after(step, kept), secret, step)
                return 0.1
        if not await self._spread(base64.b64encode(bundle_authorities(kept, self.now())).decode()):
            return SOON_SECONDS  # was it taken?
        return min(LOOK_SECONDS, max(SOON_SECONDS, self.setup.settle / 2)) if kept.next is not None else LOOK_SECONDS

    def _after(self, step: Step, kept: Kept) -> Kept:
        match step:
            case Step.PROMOTE:
                return promote_next(kept)
            case Step.PREPARE:
                return Kept(kept.current, self._new_pair(), kept.previous)
            case _ if kept.current is None and is_usable(self._last.current, self.now()):
                return self._last  # it was deleted, and every replica still serves it
            case _:
                return Kept(self._new_pair())

    def _new_pair(self) -> Pair:
        place = self.setup.place
        name = f"{place.service}.{place.namespace}.svc"
        return make_pair((name, f"{name}.cluster.local", "localhost"), self.now())

    async def _store(self, kept: Kept, secret: Secret | None, step: Step) -> None:
        namespace = self.setup.place.namespace
        why = {
            Step.MAKE: "webhooks need a certificate", Step.PREPARE: "the certificate of the webhooks ends soon",
            Step.PROMOTE: "the new certificate of the webhooks is trusted everywhere",
        }[step]  # fmt: skip
        data = write_kept(kept)
        if secret is None:
            metadata = {"name": self.setup.secret, "namespace": namespace}
            present = {name: value for name, value in data.items() if value is not None}
            # Of this type, so that cert-manager could take it over: a type cannot be changed.
            body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": present}
            try:
                await self.watch.create(self.writer, body, namespace, why=why)
            except AlreadyExists:
                pass  # another replica was faster: its certificate is as good
            return
        version = {"resourceVersion": secret.metadata.resource_version}
        await self.watch.patch(
            self.writer, self.setup.secret, {"metadata": version, "data": data}, namespace, why=why
        )  # fmt: skip

    def _settled(self, kept: Kept) -> bool:
        wanted = base64.b64encode(bundle_authorities(kept, self.now())).decode()
        same = bool(wanted) and wanted == self._trusted.bundle
        return same and self.ticks() - self._trusted.since >= self.setup.settle

    async def _spread(self, wanted: str) -> bool:
        """The bundle where requests come from; whether every one was seen with it: from then on it is trusted."""
        standings: dict[Target, Standing] = {}
        everywhere = bool(wanted)
        for target in self.setup.targets:
            standing, in_place = await self._spread_to(target, wanted)
            standings[target] = standing
            everywhere = everywhere and in_place
        self.standings = standings
        if not everywhere:
            self._trusted = _Trusted()
        elif self._trusted.bundle != wanted:
            self._trusted = _Trusted(wanted, self.ticks())
        return everywhere or not wanted

    async def _spread_to(self, target: Target, wanted: str) -> tuple[Standing, bool]:
        """How it stands, and whether it had the bundle already where it needs one."""
        try:
            thing = await self.client.get(target.kind, target.name, type=dict[str, Any])
        except NotFound:
            return Standing.MISSING, True
        clients = [client for _, client in clients_in(target, thing)]
        if not clients or not all(self.setup.place.is_ours(client) for client in clients):
            standing = Standing.ELSEWHERE
        else:
            standing = Standing.OURS
        if is_injected(thing) or not wanted:
            return standing, True
        changes = bundle_patch(target, thing, self.setup.place, wanted)
        if not changes:
            return standing, True
        why = "API servers trust the certificate of the webhooks by it"
        try:
            await self.writer.patch(target.kind, target.name, changes, type=dict[str, Any], why=why, how=How.JSON)
        except (Conflict, Invalid):
            pass  # it was changed meanwhile: the next look sees how
        return standing, False


def describe_standings(standings: Mapping[Target, Standing], what: Standing) -> Iterator[str]:
    return (str(target) for target, standing in standings.items() if standing is what)

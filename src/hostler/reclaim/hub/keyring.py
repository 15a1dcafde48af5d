"""The hub's signing key: in a Secret, so that every replica can check what another one issued. The leader makes it."""

from __future__ import annotations

import hashlib

import structlog

from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Metrics
from hostler.kube.records import Secret
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.reclaim.hub.tokens import Keys

log = structlog.get_logger("hostler.hub")

NAME, FIELD = "hostler-reclaim-key", "key.pem"


class Keyring:
    """The key as it is now; None until there is one that can be read."""

    def __init__(self, client: Client, writer: Writer, namespace: str, metrics: Metrics) -> None:
        self.watch = Watch(client, SECRET, Secret, metrics=metrics, namespace=namespace, fields=f"metadata.name={NAME}")
        self._writer, self._namespace = writer, namespace
        self._read = b""
        self._keys: Keys | None = None

    def keys(self) -> Keys | None:
        pem = self._pem()
        if pem != self._read:
            self._read = pem
            try:
                self._keys = Keys(pem) if pem else None
            except ValueError as error:
                self._keys = None
                log.warning("the signing key cannot be read; delete its Secret to have a new one", error=str(error))
        return self._keys

    @property
    def name(self) -> str:
        """Names this key: tokens of another one are worth nothing."""
        return hashlib.sha256(self._pem()).hexdigest()[:16]

    async def keep(self) -> float | None:
        """There is a key after this. If it is deleted, it is created again, and every token issued before is void."""
        if not self.watch.store.synced:
            return UNREAD_SECONDS
        if self._secret() is not None:
            return None
        body = {"metadata": {"name": NAME, "namespace": self._namespace}, "type": "Opaque"}
        why = "hosts that are returned to discovery need tokens"
        try:
            await self.watch.create(self._writer, {**body, "data": {FIELD: Keys.make()}}, self._namespace, why=why)
        except AlreadyExists:
            return 1.0
        return None

    def _secret(self) -> Secret | None:
        return next(iter(self.watch.store), None)

    def _pem(self) -> bytes:
        secret = self._secret()
        return secret.data.get(FIELD, b"") if secret is not None else b""

"""What is under way, over HTTP: /v1/operations. Read-only, admitted like every other read."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from msgspec.structs import replace

from hostler.explain.read_api import answer
from hostler.explain.registry import Explanation, Registry, UnknownKind, UnknownName
from hostler.inventory.service import InventoryService
from hostler.kube.http import Server


class OperationReads:
    def __init__(self, inventory: InventoryService, registry: Registry, notes: Callable[[], tuple[str, ...]]) -> None:
        """`notes`: what limits every answer of this replica."""
        self._inventory, self._registry, self._notes = inventory, registry, notes

    def mount(self, server: Server) -> None:
        server.add_get("/v1/operations", self._operations)

    async def _operations(self, _: web.Request) -> web.Response:
        return answer(replace(self._inventory.operations(self._explain_esxi), notes=self._notes()))

    def _explain_esxi(self, name: str) -> Explanation | None:
        try:
            return self._registry.explain("esxi", name).explanations[0]
        except (UnknownKind, UnknownName):
            return None  # maintenance is off

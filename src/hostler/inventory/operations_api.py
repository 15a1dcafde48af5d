"""What is under way, over HTTP: /v1/operations. Read-only, admitted like every other read."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from msgspec.structs import replace

from hostler.explain.read_api import answer
from hostler.inventory.service import InventoryService
from hostler.kube.http import Server


class OperationReads:
    def __init__(self, inventory: InventoryService, notes: Callable[[], tuple[str, ...]]) -> None:
        """`notes`: what limits every answer of this replica."""
        self._inventory, self._notes = inventory, notes

    def mount(self, server: Server) -> None:
        server.add_get("/v1/operations", self._operations)

    async def _operations(self, _: web.Request) -> web.Response:
        return answer(replace(self._inventory.operations(), notes=self._notes()))

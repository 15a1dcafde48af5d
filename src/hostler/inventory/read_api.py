"""The picture over HTTP: /v1/hosts and /v1/hosts/{id}. Read-only, admitted like every other read."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from msgspec.structs import replace

from hostler.explain.read_api import answer
from hostler.explain.wire import UNKNOWN_NAME, Refused
from hostler.host.conditions import names
from hostler.inventory.service import InventoryService, Several
from hostler.kube.http import Server

Notes = Callable[[], tuple[str, ...]]


class HostReads:
    """`notes`: what limits every answer of this replica."""

    def __init__(self, inventory: InventoryService, notes: Notes) -> None:
        self._inventory, self._notes = inventory, notes

    def mount(self, server: Server) -> None:
        server.add_get("/v1/hosts", self._hosts)
        server.add_get("/v1/hosts/{name:.+}", self._host)

    async def _hosts(self, request: web.Request) -> web.Response:
        since, labels = request.query.get("since", ""), request.query.get("labels", "") == "all"
        return answer(replace(self._inventory.hosts(since, labels=labels), notes=self._notes()))

    async def _host(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        match self._inventory.host(name, request.query.get("asker", "")):
            case None:
                return answer(Refused(UNKNOWN_NAME, f'No host named "{name}" is known here.'), status=404)
            case Several(ids):
                sentence = f'Several hosts are named "{name}"; ask for one of {names(ids)}.'
                return answer(Refused(UNKNOWN_NAME, sentence), status=404)
            case found:
                return answer(replace(found, notes=self._notes()))

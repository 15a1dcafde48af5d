"""The history over HTTP: /v1/history. Read-only, admitted like every other read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from aiohttp import web

from hostler.explain.read_api import answer
from hostler.explain.wire import NOT_LEADING, NOT_STORED, UNKNOWN_NAME, Refused
from hostler.history.model import Entry
from hostler.history.recorder import Store, StoreFailed
from hostler.history.wire import HistoryAnswer
from hostler.host.conditions import names
from hostler.inventory.service import InventoryService, Several
from hostler.kube.http import Server

MOST = 10_000  # entries in one answer
USUAL = 500
ID = re.compile(r"\d{1,15}\.\d{1,15}")


class HistoryReads:
    def __init__(
        self,
        store: Store,
        inventory: InventoryService,
        notes: Callable[[], tuple[str, ...]],
        trouble: Callable[[], str],
        leadership: Callable[[], str | None],
    ) -> None:
        """`notes`: what limits every answer, and why the history may not be complete. `trouble`: see the answer.

        `leadership` is None while this replica leads, else why it does not.
        """
        self._store, self._inventory, self._notes, self._trouble = store, inventory, notes, trouble
        self._leadership = leadership

    def mount(self, server: Server) -> None:
        server.add_get("/v1/history", self._history)

    async def _history(self, request: web.Request) -> web.Response:
        if not self._store.loaded:
            return self._answer_unread()
        asked = request.query
        since, most = _number(asked.get("since", ""), 0.0), int(_number(asked.get("most", ""), USUAL))
        most = max(1, min(MOST, most))
        try:
            if "after" in asked:
                return await self._page(asked["after"], since, most)
            return await self._newest(asked.get("host", ""), since, most, asked.get("capability", ""))
        except StoreFailed as error:
            return answer(Refused(NOT_STORED, f"The history cannot be read: {error}."), status=503)

    def _answer_unread(self) -> web.Response:
        if (why := self._leadership()) is not None:
            sentence = f"This replica does not answer for the history: {why}."
            return answer(Refused(NOT_LEADING, sentence), status=421)
        why = self._trouble() or "This replica leads and has not read the history yet; ask again in a few seconds."
        unread = answer(Refused(NOT_STORED, why), status=503)
        unread.headers["Retry-After"] = "2"
        return unread

    async def _newest(self, name: str, since: float, most: int, capability: str) -> web.Response:
        keys: tuple[str, ...] = ()
        if name:
            match self._inventory.host(name):
                case None:
                    keys = (name,)  # a layer that is gone still has its history
                case Several(ids):
                    sentence = f'Several hosts are named "{name}"; ask for one of {names(ids)}.'
                    return answer(Refused(UNKNOWN_NAME, sentence), status=404)
                case found:
                    keys = self._inventory.history_keys(found.row.host)
        entries = await self._store.find(keys, since, most + 1, capability)
        if name and not entries and keys == (name,):
            return answer(Refused(UNKNOWN_NAME, f'No host named "{name}" is known here.'), status=404)
        return self._answer(entries, most)

    async def _page(self, after: str, since: float, most: int) -> web.Response:
        """The entries after that one, the oldest first: to read all of them, page by page."""
        if after and not ID.fullmatch(after):
            return answer(Refused(UNKNOWN_NAME, f'"{after}" is no id of an entry.'), status=404)
        return self._answer(await self._store.after(after, since, most + 1), most)

    def _answer(self, entries: Sequence[Entry], most: int) -> web.Response:
        shown = tuple(entries[:most])
        hosts = {key: host.name for key in {entry.key for entry in shown} if (host := self._inventory.host_of(key))}
        return answer(HistoryAnswer(shown, hosts, len(entries) <= most, self._notes(), self._trouble()))


def _number(text: str, default: float) -> float:
    try:
        number = float(text) if text else default
    except ValueError:
        return default
    return number if math.isfinite(number) else default

"""What platform knows of hosts: a check of their node that failed, and pods that need a driver it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hostler.inventory.model import Host, Layer
from hostler.inventory.sources import Source
from hostler.platform.controller import PlatformKeeper
from hostler.platform.model import Result


class PlatformSource(Source):
    """It shows no hosts; what it knows of one is told where that host is asked for."""

    def __init__(self, keeper: PlatformKeeper) -> None:
        self._keeper = keeper

    def listen(self, changed: Callable[[], None]) -> None:
        """Nothing of it is in a layer."""

    def take(self) -> Mapping[str, Layer | None]:
        return {}

    def notes(self, host: Host) -> tuple[str, ...]:
        checked = self._keeper.round.results.get(host.node)
        failed = checked is not None and checked.result is not Result.PASSED
        check = (f"Its platform check: {checked.result}. {checked.why}.",) if checked is not None and failed else ()
        pods = (pod for pod in self._keeper.stranded if host.node and pod.node == host.node)
        return (*check, *(f"A pod needs a driver that its node lacks: {pod}." for pod in pods))

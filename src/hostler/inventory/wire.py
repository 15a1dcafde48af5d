"""The shapes of `/v1/hosts`, shared by the operator that serves them, the CLI and the page. Pure."""

from __future__ import annotations

from hostler.instant import Instant
from hostler.inventory.model import Host, Layer, Shape
from hostler.inventory.overdue import Overdue
from hostler.inventory.safe_to_stop import SafeToStop


class HostRow(Shape, frozen=True):
    """A host as lists show it."""

    host: Host
    overdue: Overdue | None = None
    safe_to_stop: SafeToStop | None = None


class HostsAnswer(Shape, frozen=True):
    """`/v1/hosts`. `complete`: these are all; otherwise what changed since the version that was asked for."""

    version: str
    at: Instant
    hosts: tuple[HostRow, ...]
    gone: tuple[str, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()


class HostAnswer(Shape, frozen=True):
    """`/v1/hosts/{id}`: one host with its layers."""

    version: str
    at: Instant
    row: HostRow
    layers: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()

"""Asks every vCenter for the nodes' VMs, each in one bulk read, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hostler.host.facts import Fact, then
from hostler.platform.checks import Machine, spelled

if TYPE_CHECKING:  # the vCenter client costs memory, and an operator without a vCenter does not need it
    from hostler.vsphere.bulk import Checked


class VmSource(Protocol):
    """What we need of a vCenter; `vsphere.vcenter.VCenter` is the real one."""

    @property
    def name(self) -> str: ...
    async def check_nodes(self, uuids: Collection[str]) -> Fact[list[Checked]]: ...


async def ask(vcenters: Sequence[VmSource], uuids: Collection[str]) -> dict[str, Fact[Sequence[Machine]]]:
    """The answer of each vCenter by its name; one that does not answer is Unknown, with its reason."""
    answers = await asyncio.gather(*(one.check_nodes(uuids) for one in vcenters))
    return {
        one.name: then(answer, partial(_machines, vcenter=one.name))
        for one, answer in zip(vcenters, answers, strict=True)
    }


def _machines(found: Sequence[Checked], vcenter: str) -> Sequence[Machine]:
    return tuple(
        Machine(spelled(one.uuid), one.name, one.hardware_version, one.esxi_version, vcenter, one.vm, one.guest)
        for one in found
    )

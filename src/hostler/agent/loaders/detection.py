"""Which boot loader starts this host, by evidence on its disk and in its firmware; never by a guess.

Two loaders with nothing that tells which of them is used, or none at all, is a refusal with the evidence in it.
"""

from __future__ import annotations

from hostler.agent.host import Host
from hostler.agent.loaders.grub_bls import GrubBls
from hostler.agent.loaders.grub_static import GrubStatic
from hostler.agent.loaders.loader import BootLoader, loader_variable
from hostler.agent.loaders.systemd_boot import SystemdBoot
from hostler.agent.loaders.zipl import Zipl
from hostler.agent.refusal import Reason, Refusal

LOADERS: tuple[type[BootLoader], ...] = (SystemdBoot, GrubBls, GrubStatic, Zipl)


def detect_loader(host: Host) -> BootLoader:
    """The loader of this host, or a Refusal with what was found instead."""
    named = loader_variable(host, "LoaderInfo")
    found = [loader for dialect in LOADERS if (loader := dialect.find(host)) is not None]
    found = [loader for loader in found if not loader.only_alone] or found
    started = [loader for loader in found if named.lower().startswith(loader.program.lower())]
    match started or found:
        case []:
            absent = ", ".join(dict.fromkeys(f"no {dialect.looked_for}" for dialect in LOADERS))
            firmware = f"; the firmware names {named}" if named else ""
            raise Refusal(Reason.UNKNOWN_BOOTLOADER, f"No boot loader was recognised: {absent}{firmware}.")
        case [loader]:
            loader.check()
            return loader
    several = " and ".join(f"{loader.program} ({loader.evidence[0]})" for loader in found)
    raise Refusal(
        Reason.UNKNOWN_BOOTLOADER,
        f"Both {several} are on this host, and its firmware does not say which of them started it.",
    )

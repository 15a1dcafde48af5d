"""What a capability is, as one row of the table `hostler.capabilities`, and whether it is switched on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hostler.safety.incumbents import Incumbent


@dataclass(frozen=True, slots=True)
class CapabilityInfo:
    """One thing Hostler can do. Its code is named by text (`module:name`): what is off costs no import."""

    name: str
    help: str
    always: bool = False  # cannot be switched off by --only
    by_default: bool = False  # on without being named, if `needs` is met
    needs: tuple[str, ...] = ()  # environment names of settings: it cannot work without at least one of them
    asks_vcenters: bool = False
    incumbents: tuple[Incumbent, ...] = ()
    made_by: str = ""  # a subclass of `hostler.capability.Capability`; "" where the operator itself does it
    settings: str = ""  # a module with SETTINGS and RULES
    rights: str = ""  # a tuple of `hostler.install.rights.Right`
    commands: str = ""  # a group of commands, under the capability's name


def load_part(place: str) -> Any:
    """What `module:name` of a row stands for; a module where no name follows."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether a capability is switched on in this run, with a sentence saying why."""

    capability: CapabilityInfo
    on: bool
    why: str


def choose(capabilities: Iterable[CapabilityInfo], only: Collection[str], configured: Collection[str]) -> list[Choice]:
    """What runs, given `--only` and the names of settings that have a value. Nothing dangerous is on by default."""
    return [_choose(capability, only, configured) for capability in capabilities]


def _choose(capability: CapabilityInfo, only: Collection[str], configured: Collection[str]) -> Choice:
    name = capability.name
    if capability.always:
        return Choice(capability, True, "It is always on.")
    if capability.needs and not any(one in configured for one in capability.needs):
        return Choice(capability, False, f"It needs {' or '.join(capability.needs)}, which is not set.")
    if name in only:
        return Choice(capability, True, "It is named by --only.")
    if only:
        return Choice(capability, False, "It is not named by --only.")
    if capability.by_default:
        given = next((one for one in capability.needs if one in configured), "what it needs")
        return Choice(capability, True, f"It is on by default because {given} is set.")
    return Choice(capability, False, f"It is off until named: --only {name}.")

"""What an operator is granted for what is on: behind the chart's roles, docs/rights.md and `hostler doctor`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from hostler.capabilities import CAPABILITIES
from hostler.install.rights import Right
from hostler.safety.incumbents import Incumbent
from hostler.safety.switches import CapabilityInfo, load_part


def _incumbent_rights(capability: CapabilityInfo) -> Iterator[Right]:
    """To see whether the controller we take the place of is still at work. In any namespace: theirs may not exist."""
    for incumbent in capability.incumbents:
        why = f"Whether {incumbent.name} is still at work."
        if incumbent.signs is not None:
            yield Right("deployments.apps", ("list",), f"{why} It may have any name: label, image and variables tell.")
        for at in incumbent.deployments:
            yield Right("deployments.apps", ("get",) if at.namespace else ("list",), why, names=(at.name,))
        for at in incumbent.leases:
            yield Right("leases.coordination.k8s.io", ("get",), why, names=(at.name,))
        for trail in incumbent.trails:
            yield Right(trail.kind, ("get",), why, names=(trail.at.name,))
        yield from _webhook_rights(incumbent)


def _webhook_rights(incumbent: Incumbent) -> Iterator[Right]:
    why = f"Whether a webhook of {incumbent.name} was left pointing nowhere."
    if incumbent.webhook_services:
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            yield Right(f"{plural}.admissionregistration.k8s.io", ("list",), why)
        yield Right("endpointslices.discovery.k8s.io", ("list",), why)
    if incumbent.definitions:
        yield Right("customresourcedefinitions.apiextensions.k8s.io", ("get",), why, names=incumbent.definitions)


def rights_of(capability: CapabilityInfo) -> tuple[Right, ...]:
    """Everything one capability needs, also to see whether the controller it replaces is at work."""
    return tuple(dict.fromkeys((*load_part(capability.rights), *_incumbent_rights(capability))))


def limits_of(shown: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The namespaces beyond which a capability needs no rights, by the setting that names them.

    `shown`: settings by name, as the operator shows them.
    """
    limiting = {right.limited_by for capability in CAPABILITIES for right in rights_of(capability)} & shown.keys()
    return {name: tuple(filter(None, shown[name].split(","))) for name in limiting}


def rights_for(names: Collection[str]) -> tuple[Right, ...]:
    """What an operator with these capabilities needs; what is always on is always in it."""
    on = [capability for capability in CAPABILITIES if capability.always or capability.name in names]
    return tuple(dict.fromkeys(right for capability in on for right in rights_of(capability)))

"""How people spell kinds, kubectl's short names included, and what the shell completes of kinds and names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hostler.settings import foundation

if TYPE_CHECKING:
    from hostler.kube.kinds import Kind
    from hostler.settings.model import Settings

# What a shell's completion may ask with.
ASKING = (foundation.KUBECONFIG, foundation.CONTEXT, foundation.CONFIG)
COMPLETION_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Spelled:
    """One kind: as the operator knows it, as people may write it, and the capabilities that manage it."""

    name: str
    short: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()  # empty: always explained
    within: str = ""  # the only namespace whose objects count; the operator knows them by their bare names
    unmanaged: str = ""  # why a capability that is on may leave one alone, where that is known


OUT_OF_SCOPE = "it is new, or outside of HOSTLER_METAL_NAMESPACES or HOSTLER_METAL_WATCH_FILTER"
KINDS = (
    Spelled("node", ("no", "nodes")),
    Spelled("vm", ("vms", "virtualmachine"), ("maintenance",)),
    Spelled("esxi", ("esx",), ("maintenance",), unmanaged="the VM of no managed node is on it"),
    Spelled("baremetalhost", ("bmh", "bmhs", "baremetalhosts"), ("metal",), unmanaged=OUT_OF_SCOPE),
    Spelled("metal3machine", ("m3m", "m3machine", "m3machines", "metal3machines"), ("metal",), unmanaged=OUT_OF_SCOPE),
    Spelled("metal3remediation", ("m3r", "m3remediation", "metal3remediations"), ("metal",), unmanaged=OUT_OF_SCOPE),
    Spelled("agent", ("agents",), ("reclaim",)),
    Spelled("certificatesigningrequest", ("csr", "csrs", "certificatesigningrequests"), ("join",)),
    Spelled(
        "ingresscontroller", ("ingresscontrollers",), ("ingress",), "openshift-ingress-operator"
    ),
    Spelled("ingress", ("ing", "ingresses"), ("ingress",), unmanaged="only the one named cluster counts"),
    Spelled("deployment", ("deploy", "deployments"), ("ingress",), unmanaged="Fleet.spec.ingress does not name it"),
    Spelled(
        "daemonset", ("ds", "daemonsets"), ("platform", "ingress"),
        unmanaged="neither spec.platform nor spec.ingress.workloads of the Fleet names it",
    ),
    Spelled("platform", (), ("platform",)),
)  # fmt: skip
_BY_WORD = {word: one for one in KINDS for word in (one.name, *one.short)}


def spelled(word: str) -> Spelled:
    """The kind a word means; one that is not known here may be known to a newer operator."""
    return _BY_WORD.get(word.lower(), Spelled(word.lower()))


def object_kind(name: str) -> Kind | None:
    """The kind of the object in Kubernetes; None: no object stands for it."""
    from hostler.apis import assisted, metal3, openshift
    from hostler.join.model import SIGNING_REQUEST
    from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, NODE

    return {
        "node": NODE,
        "baremetalhost": metal3.BARE_METAL_HOST,
        "metal3machine": metal3.METAL3_MACHINE,
        "metal3remediation": metal3.METAL3_REMEDIATION,
        "agent": assisted.AGENT,
        "certificatesigningrequest": SIGNING_REQUEST,
        "ingresscontroller": openshift.INGRESS_CONTROLLER,
        "ingress": openshift.INGRESS,
        "deployment": DEPLOYMENT,
        "daemonset": DAEMON_SET,
    }.get(name)


# -- completion


def complete_thing(context: typer.Context, incomplete: str) -> list[str]:
    """`KIND/` first, then the names of that kind as the API server has them."""
    word, slash, begun = incomplete.partition("/")
    if not slash:
        return [f"{one}/" for known in KINDS for one in (known.name, *known.short) if one.startswith(word)]
    return [f"{word}/{name}" for name in _names(context, spelled(word).name) if name.startswith(begun)]


def complete_node(context: typer.Context, incomplete: str) -> list[str]:
    given = context.params.get("nodes") or ()
    return [name for name in _names(context, "node") if name.startswith(incomplete) and name not in given]


def _names(context: typer.Context, kind: str) -> list[str]:
    """Sorted; none where nobody can be asked: a shell that completes must not show an error."""
    import asyncio

    from hostler.settings.resolve import resolve

    given = {one.key: str(text) for one in ASKING if (text := context.params.get(one.key)) is not None}
    try:
        settings = resolve(given, os.environ, table=ASKING)
        return sorted(asyncio.run(asyncio.wait_for(_listed(settings, kind), COMPLETION_SECONDS)))
    except Exception:  # noqa: BLE001  # see above
        return []


async def _listed(settings: Settings, kind: str) -> Iterable[str]:
    from hostler.kube.client import Client
    from hostler.kube.config import load
    from hostler.kube.records import Object, key_of

    found = object_kind(kind)
    if found is None:
        return ()
    async with Client(load(foundation.kubeconfig_path(settings), settings[foundation.CONTEXT])) as client:
        return [key_of(one.metadata) for one in await client.list(found, type=Object)]

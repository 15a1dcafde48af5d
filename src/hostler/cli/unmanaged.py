"""Why the operator says nothing about a thing that is there: looked up with the person's own rights."""

from __future__ import annotations

from urllib.parse import quote

import typer

from hostler.cli.cluster import ask_cluster, ask_operator
from hostler.cli.kinds import Spelled, object_kind
from hostler.errors import Complaint, Exit
from hostler.explain.wire import StatusAnswer
from hostler.host.conditions import names
from hostler.inventory.wire import HostAnswer
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ApiError
from hostler.kube.records import Object
from hostler.settings.foundation import CONTEXT, OPERATOR, kubeconfig_path
from hostler.settings.model import Settings


def in_namespace(settings: Settings, about: Spelled, name: str, namespace: str) -> str:
    """The name as the operator knows it: NAMESPACE/NAME where there are namespaces, read as kubectl reads -n."""
    kind = object_kind(about.name)
    if kind is None or not kind.namespaced:
        return name  # as kubectl: -n says nothing about what has none
    inside, slash, bare = name.partition("/")
    if about.within:
        return bare if slash else name
    if not slash:
        return f"{namespace or _namespace_of_context(settings)}/{name}"
    if namespace and namespace != inside:
        raise typer.BadParameter(f"{name} is not in namespace {namespace}", param_hint="--namespace")
    return name


def _namespace_of_context(settings: Settings) -> str:
    try:
        return load(kubeconfig_path(settings), settings[CONTEXT]).namespace
    except Complaint:
        if settings[OPERATOR]:  # then no kubeconfig is needed, and none says which namespace is meant
            return "default"
        raise


def why_unmanaged(settings: Settings, about: Spelled, name: str) -> Complaint | None:
    """That the thing exists and why Hostler leaves it alone; None: it does not exist, or nobody can tell."""
    if not about.capabilities:
        return None
    try:
        on = _switched_on(settings)
        off = not on & set(about.capabilities)
        if object_kind(about.name) is None:
            there = not off and _is_host(settings, name)
        else:
            there = _is_object(settings, about, name)
    except Complaint:
        return None
    which = f"{about.name} {name}"
    first = about.capabilities[0]
    hint = f"Switch it on: name {first} in --only, or capabilities.{first}=true in the chart."
    if not there:
        if not off or object_kind(about.name) is not None:
            return None
        sentence = f"Cannot tell whether {which} exists, because {first} is off."
        return Complaint(sentence, hint=hint, code=Exit.REFUSED)
    if off:
        verb = "is" if len(about.capabilities) == 1 else "are"
        why = f"{names(about.capabilities)} {verb} off"
    else:
        looking = names([one for one in about.capabilities if one in on])
        why = about.unmanaged or f"{looking} has decided nothing about it: it is new, or {looking} does not look at it"
        hint = "If it is new, try again in some seconds; `hostler doctor` says what the operator may not read."
    return Complaint(f"{which} exists, but is not managed by Hostler, because {why}.", hint=hint, code=Exit.REFUSED)


def _switched_on(settings: Settings) -> set[str]:
    status = ask_operator(settings, "/v1/status", StatusAnswer).status
    return {one.name for one in status.capabilities if one.enabled}


def _is_object(settings: Settings, about: Spelled, name: str) -> bool:
    """Whether this person can see the object. What they may not look at leaves the operator's own answer standing."""
    kind = object_kind(about.name)
    namespace, _, own_name = name.rpartition("/")
    namespace = namespace or about.within
    if kind is None or kind.namespaced is not bool(namespace):
        return False

    async def exists(client: Client) -> bool:
        try:
            await client.get(kind, own_name, namespace or None, type=Object)
        except ApiError:
            return False
        return True

    return ask_cluster(settings, exists)


def _is_host(settings: Settings, name: str) -> bool:
    """What has no object is a host in vCenter; the operator's picture has it if vCenter does."""
    return bool(ask_operator(settings, f"/v1/hosts/{quote(name, safe='')}", HostAnswer).row.host.id)


def node_of_vm(settings: Settings, vm: str) -> str:
    """The node that runs in this VM, as the operator has proven it. A Complaint says why there is none."""
    host = ask_operator(settings, f"/v1/hosts/{quote(vm, safe='')}", HostAnswer).row.host
    if host.node:
        return host.node
    notes = " ".join(host.notes)
    raise Complaint(
        f"VM {vm} exists, but is not managed by Hostler, because no node is proven to run in it. {notes}".strip(),
        hint=f"See: hostler host {vm}",
        code=Exit.REFUSED,
    )

"""Why the operator says nothing about a thing that is there: looked up with the person's own rights."""

from __future__ import annotations

from urllib.parse import quote

from hostler.cli.cluster import ask_cluster, ask_operator
from hostler.cli.kinds import Spelled, object_kind
from hostler.errors import Complaint, Exit
from hostler.explain.wire import StatusAnswer
from hostler.inventory.wire import HostAnswer
from hostler.kube.client import Client
from hostler.kube.errors import ApiError
from hostler.kube.records import Object
from hostler.settings.model import Settings


def why_unmanaged(settings: Settings, about: Spelled, name: str) -> Complaint | None:
    """That the object exists and why Hostler leaves it alone; None: it does not exist, or nobody can tell."""
    kind = object_kind(about.name)
    if kind is None or not about.capability:
        return None
    namespace, _, own_name = name.rpartition("/")
    if kind.namespaced is not bool(namespace):
        return None

    async def exists(client: Client) -> bool:
        try:
            await client.get(kind, own_name, namespace or None, type=Object)
        except ApiError:  # it is not there, or this person may not look: then the operator's answer stands
            return False
        return True

    try:
        if not ask_cluster(settings, exists):
            return None
        status = ask_operator(settings, "/v1/status", StatusAnswer).status
    except Complaint:
        return None
    capability = about.capability
    if any(one.name == capability and one.enabled for one in status.capabilities):
        why = f"{capability} has decided nothing about it: it may be new, or none of those that {capability} looks at"
        hint = "Try again in some seconds; `hostler doctor` says what the operator may not read."
    else:
        why = f"{capability} is off"
        hint = f"Switch it on: name {capability} in --only, or capabilities.{capability}=true in the chart."
    sentence = f"{about.name} {name} exists, but is not managed by Hostler, because {why}."
    return Complaint(sentence, hint=hint, code=Exit.REFUSED)


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

"""`hostler doctor`: looks at everything Hostler depends on and says what to mend. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from hostler import __version__
from hostler.cli import flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.explain import ASKING
from hostler.cli.listing import Column, Listed, Table, View, sentence, show_list, takes_view
from hostler.errors import Complaint, Exit
from hostler.history.settings import HISTORY_URL
from hostler.maintenance import settings as maintenance
from hostler.settings.foundation import CLUSTER_NAME, LEASE_NAME, NAMESPACE, OPERATOR
from hostler.settings.model import Setting, Settings

if TYPE_CHECKING:
    from hostler.explain.doctor import Facts, Finding, VCenterSeen
    from hostler.explain.wire import StatusAnswer
    from hostler.host.facts import Fact
    from hostler.kube.client import Client
    from hostler.kube.kinds import Kind
    from hostler.vsphere.endpoints import Endpoint
    from hostler.vsphere.trust import Trust

app = typer.Typer()
T = TypeVar("T")


_TONES = {"ok": Tone.GOOD, "warning": Tone.BUSY, "problem": Tone.BAD}
FINDINGS: Table[Finding] = Table(
    name=lambda finding: finding.what,
    columns=(
        Column("level", lambda finding: Cell(finding.level, _TONES.get(finding.level, Tone.NONE)), needed=True),
        Column("what", lambda finding: finding.what, needed=True, least=14, wrap=True),
        sentence("found", lambda finding: finding.why),
        Column("to mend it", lambda finding: finding.fix, order=80, least=20, needed=True, wrap=True, below=True),
    ),
)


@app.command()
@flags.takes(*ASKING, also=(CLUSTER_NAME, HISTORY_URL, *maintenance.SETTINGS))
@takes_view(FINDINGS.words)
def doctor(settings: Settings, view: View) -> None:
    """Look at everything Hostler depends on and say what to mend. Changes nothing; exit code 1 with a problem.

    Looks at the cluster, the operator, its rights and its vCenters, every node, work that was begun and
    left, and each vCenter that is configured here (VCENTER_HOST or VCENTERS_FILE), from this machine.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.explain.doctor import Level, examine

    found: list[Finding] = []

    def look() -> Listed[Finding]:
        nonlocal found
        found = examine(ask_cluster(settings, lambda client: _look(client, settings)), time.time())
        return Listed(found)

    show_list(view, look, FINDINGS)
    if any(one.level is Level.PROBLEM for one in found):
        raise typer.Exit(Exit.FAILED)


async def _look(client: Client, settings: Settings) -> Facts:
    from hostler.cli.cluster import ask_operator_by
    from hostler.explain.doctor import Facts, begun, left_behind
    from hostler.explain.wire import StatusAnswer
    from hostler.history import findings as history
    from hostler.history.wire import HistoryAnswer
    from hostler.host.facts import Known
    from hostler.install.admission import policy_findings
    from hostler.install.apply import read_policies
    from hostler.kube.connection_check import check
    from hostler.kube.kinds import FLEET, NODE, PAUSE
    from hostler.kube.records import Node
    from hostler.metal.migration import leftovers as metal
    from hostler.metal.migration.stored_versions import read_definitions, stored_version_findings
    from hostler.platform import withdrawal
    from hostler.reclaim import findings as reclaim

    async def nodes() -> tuple[Node, ...]:
        return tuple(await client.list(NODE, type=Node))

    async def server() -> str:
        return (await check(client)).git

    way = ""

    async def status() -> StatusAnswer:
        nonlocal way
        try:
            return await ask_operator_by(client, settings, "/v1/status", StatusAnswer)
        except Complaint as complaint:
            way = complaint.hint
            raise Complaint(complaint.sentence) from None

    async def recorded() -> HistoryAnswer:
        return await ask_operator_by(client, settings, "/v1/history?most=1", HistoryAnswer)

    vcenters = await _vcenters(client, settings)
    asked = await _known(status)
    told = await _told(client, settings) if isinstance(asked, Known) else {}
    seen = await _known(nodes)
    left = await _known(lambda: withdrawal.find_leftovers(client))
    agents = await _known(lambda: reclaim.find_kept_agents(client))
    hosts, unlabelled = (
        await _known(lambda: metal.find_leftovers(client)),
        await _known(lambda: metal.find_unlabelled(client)),
    )
    maintenance_on, platform_on, reclaim_on, metal_on = (
        _has_on(name, asked, settings) for name in ("maintenance", "platform", "reclaim", "metal")
    )
    working = isinstance(maintenance_on, Known) and maintenance_on.value
    return Facts(
        version=__version__,
        server=await _known(server),
        fleet_kind=await _known(lambda: _has_kind(client, FLEET)),
        pause_kind=await _known(lambda: _has_kind(client, PAUSE)),
        paused_field=isinstance(field := await _known(lambda: _has_paused_field(client)), Known) and field.value,
        operator=asked,
        rights=await _known(lambda: _rights(client, settings, asked.value, told)) if isinstance(asked, Known) else None,
        nodes=seen,
        label=_own(maintenance.GPU_NODE_LABEL, told if working else {}, settings) if working or vcenters else "",
        vcenters=vcenters,
        way=way,
        capabilities=(
            *(await _followed(client, settings) if working else ()),
            *left_behind("maintenance", begun(seen), on=maintenance_on),
            *withdrawal.leftover_findings(left, on=platform_on),
            *left_behind("reclaim", agents, on=reclaim_on),
            *reclaim.list_findings(await _known(lambda: reclaim.read_hub_objects(client)), told, on=reclaim_on),
            *metal.leftover_findings(hosts, unlabelled, on=metal_on),
            *stored_version_findings(
                await _known(lambda: read_definitions(client)), on=isinstance(metal_on, Known) and metal_on.value
            ),
            *policy_findings(await _known(lambda: read_policies(client))),
            *history.findings(
                await _known(recorded) if isinstance(asked, Known) else None, await history.look_from_here(settings)
            ),
        ),
    )


def _has_on(name: str, asked: Fact[StatusAnswer], settings: Settings) -> Fact[bool]:
    """Whether the operator has this capability on. One named by its URL that is not there has nothing on."""
    from hostler.host.facts import Known, Unknown

    if isinstance(asked, Unknown):
        return Known(False, 0.0) if settings[OPERATOR] else asked
    return Known(any(one.name == name and one.enabled for one in asked.value.status.capabilities), asked.at)


async def _known(look: Callable[[], Awaitable[T]]) -> Fact[T]:
    """What the look found, or in words why it found nothing: one look that fails must not hide the others."""
    from msgspec import MsgspecError

    from hostler.host.facts import Known, Unknown
    from hostler.kube.errors import ApiError, Unreachable

    try:
        return Known(await look(), time.time())
    except Complaint as complaint:
        return Unknown(str(complaint))
    except (ApiError, Unreachable) as error:
        return Unknown(str(error))
    except MsgspecError as error:
        return Unknown(f"the answer cannot be read: {error}")


async def _rights(client: Client, settings: Settings, answer: StatusAnswer, told: Mapping[str, str]) -> tuple[str, ...]:
    """What the ServiceAccount of the leader's pod lacks for what is on."""
    from hostler.install.grants import limits_of, rights_for
    from hostler.install.reviews import missing_rights
    from hostler.install.roles import Account
    from hostler.kube.errors import NotFound
    from hostler.kube.kinds import POD
    from hostler.kube.replica import pod_of

    name, namespace = pod_of(answer.status.leader or answer.identity), settings[NAMESPACE]
    try:
        pod = await client.get(POD, name, namespace, type=dict[str, Any])
    except NotFound:
        raise Complaint(f"The operator is no pod in {namespace}, so its rights were not looked at.") from None
    user, lease = pod["spec"].get("serviceAccountName", "default"), _own(LEASE_NAME, told, settings)
    account = Account(namespace, user, lease, limits_of(told))
    on = [one.name for one in answer.status.capabilities if one.enabled]
    return await missing_rights(client, account, rights_for(on))


async def _has_kind(client: Client, kind: Kind) -> bool:
    from hostler.kube.errors import NotFound
    from hostler.kube.records import Object

    try:
        await client.list(kind, type=Object)
    except NotFound:
        return False
    return True


async def _has_paused_field(client: Client) -> bool:
    """Whether a Fleet under an older CRD says that it is paused: that paused an older operator, and does not us."""
    from hostler.apis.fleet import NAME
    from hostler.kube.errors import NotFound
    from hostler.kube.kinds import FLEET

    try:
        fleet = await client.get(FLEET, NAME, type=dict[str, Any])
    except NotFound:
        return False
    return bool(fleet.get("spec", {}).get("paused"))


async def _told(client: Client, settings: Settings) -> dict[str, str]:
    """The operator's own settings, which it may have from elsewhere than we have ours."""
    from hostler.cli.cluster import ask_operator_by
    from hostler.explain.wire import Config
    from hostler.host.facts import Known

    found = await _known(lambda: ask_operator_by(client, settings, "/v1/config", Config))
    return {one.name: one.value for one in found.value.settings} if isinstance(found, Known) else {}


def _own(setting: Setting[str], told: Mapping[str, str], settings: Settings) -> str:
    """What the operator has for it; ours, where it did not say."""
    return told.get(setting.name, settings[setting])


async def _followed(client: Client, settings: Settings) -> tuple[Finding, ...]:
    """How the operator itself stands with its vCenters."""
    from hostler.cli.cluster import ask_operator_by
    from hostler.maintenance.status import MaintenanceStatus, list_findings

    return tuple(
        list_findings(await _known(lambda: ask_operator_by(client, settings, "/v1/maintenance", MaintenanceStatus)))
    )


async def _vcenters(client: Client, settings: Settings) -> dict[str, VCenterSeen]:
    """Each that is configured here. What is wrong with these settings hides nothing else."""
    import asyncio

    from hostler.explain.doctor import VCenterSeen
    from hostler.vsphere.endpoints import endpoints

    try:
        configured = endpoints(settings)
    except Complaint as complaint:
        return {"": VCenterSeen("settings of this machine", trouble=complaint.sentence)}
    if not configured:
        return {}
    trust = await _trusted(client, settings)
    return {one.name: await asyncio.to_thread(_vcenter, one, trust) for one in configured}


async def _trusted(client: Client, settings: Settings) -> Trust:
    """What the operator remembers of its vCenters; without it no password is sent from here."""
    from hostler.host.facts import Known
    from hostler.safety.vcenter_trust import NAME, read_trusted
    from hostler.vsphere.trust import ReadOnly, Trust

    found = await _known(lambda: read_trusted(client, settings[NAMESPACE]))
    place = f"Secret {NAME} in namespace {settings[NAMESPACE]}"
    why = f"{place} has no entry for it." if isinstance(found, Known) else f"{place} cannot be read ({found.why})."
    return Trust(ReadOnly(found.value if isinstance(found, Known) else {}, why))


def _vcenter(endpoint: Endpoint, trust: Trust) -> VCenterSeen:
    """One login from here, its privileges at the root, and out again."""
    from prometheus_client import CollectorRegistry

    from hostler.explain.doctor import VCenterSeen
    from hostler.vsphere.bulk import NEEDED, OPTIONAL, NoAnswer, Privilege, missing_at_root
    from hostler.vsphere.metrics import Metrics
    from hostler.vsphere.session import Session, diagnose
    from hostler.vsphere.trust import TrustUnavailable

    def said(privileges: list[Privilege]) -> tuple[str, ...]:
        return tuple(f"{one.id} ({one.why})" for one in privileges)

    session = Session(endpoint, Metrics(CollectorRegistry()), wait_seconds=0, trust=trust)
    try:
        session.open()
        lacking = missing_at_root(session, (*NEEDED, *OPTIONAL))
    except NoAnswer as error:
        return VCenterSeen(endpoint.name, rights_unread=str(error), unverified=bool(endpoint.warning()))
    except TrustUnavailable as error:
        return _untrusted(endpoint, error)
    except Exception as error:  # noqa: BLE001  # whatever it is, `diagnose` has a sentence for it
        return VCenterSeen(endpoint.name, trouble=diagnose(endpoint.name, error).sentence)
    finally:
        session.close()
    return VCenterSeen(
        endpoint.name,
        lacks=said([one for one in lacking if one in NEEDED]),
        lacks_optional=said([one for one in lacking if one in OPTIONAL]),
        unverified=bool(endpoint.warning()),
    )


def _untrusted(endpoint: Endpoint, error: Complaint) -> VCenterSeen:
    """What it shows, for who can compare; not one byte is sent to it."""
    from hostler.explain.doctor import VCenterSeen
    from hostler.fingerprints import fingerprint_of
    from hostler.vsphere.pinned_tls import look_at_server
    from hostler.vsphere.session import diagnose

    try:
        shown = fingerprint_of(look_at_server(endpoint.host, endpoint.port, bundle=False).leaf)
    except OSError as away:
        return VCenterSeen(endpoint.name, trouble=diagnose(endpoint.name, away).sentence)
    return VCenterSeen(endpoint.name, untrusted=f"{error.sentence} It shows SHA-256 {shown}.")

"""`hostler join`: who waits to become a node and why, who is expected, and approving by hand."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags, join_boot
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, age_of, sentence, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note
from hostler.errors import Complaint, Exit
from hostler.join.settings import (
    JOIN_BOOTSTRAPPERS,
    JOIN_CLUSTERS,
    JOIN_INVENTORIES,
    JOIN_KUBELET_CA,
    JOIN_PENDING_SLACK,
    JOIN_SERVING,
    JOIN_SPOKES,
    JOIN_WINDOW_SECONDS,
)
from hostler.settings.foundation import NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.apis.fleet import ExpectedHost
    from hostler.join.commands import Asked
    from hostler.join.model import SigningRequest, Verdict
    from hostler.kube.client import Client

BY_HAND = "Those to approve are approved by an operator with --only join; by hand: `hostler join approve CSR`."
app = typer.Typer(no_args_is_help=True, help="Let new nodes in: what they boot with, and their certificates.")
RULES = (
    JOIN_BOOTSTRAPPERS, JOIN_CLUSTERS, JOIN_INVENTORIES, JOIN_WINDOW_SECONDS, JOIN_SERVING, JOIN_PENDING_SLACK,
    JOIN_KUBELET_CA,
)  # fmt: skip
Host = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name its node will have. Unset: show who is expected.", show_default=False
    ),
]


@app.callback()
def group() -> None:
    """Let new nodes in: what they boot with, and their certificates."""


join_boot.add_to(app)


Cluster = Annotated[
    str,
    typer.Option(
        "--cluster", metavar="NAMESPACE/NAME", help="The further cluster it is in, by its Cluster or ClusterDeployment."
    ),
]


@dataclass(frozen=True, slots=True)
class Judged:
    """A request and the further cluster it is in; "" for this one."""

    cluster: str
    verdict: Verdict


_TONES = {"approve": Tone.GOOD, "wait": Tone.BUSY, "leave": Tone.BAD, "ignore": Tone.QUIET, "done": Tone.QUIET}
REQUESTS: Table[Judged] = Table(
    name=lambda judged: f"certificatesigningrequest/{judged.verdict.csr}",
    columns=(
        Column("request", lambda judged: judged.verdict.csr, needed=True),
        Column("cluster", lambda judged: judged.cluster, order=4),
        Column("kind", lambda judged: "serving" if judged.verdict.serving else "client", order=2),
        Column("node", lambda judged: judged.verdict.node or "-", order=5),
        Column("age", lambda judged: _age_text(judged.verdict), order=3, ages=True,
               sort=lambda judged: -judged.verdict.created),
        Column("verdict", lambda judged: Cell(judged.verdict.act, _TONES[judged.verdict.act]), needed=True),
        sentence("why", lambda judged: judged.verdict.why),
    ),
)  # fmt: skip


def _age_text(verdict: Verdict) -> str:
    from hostler.inventory.listing import age_text

    return age_text(verdict.created or None, time.time())


@app.command()
@flags.takes(*flags.CLUSTER, JOIN_SPOKES, also=RULES)
@takes_view(REQUESTS.words)
def csrs(settings: Settings, view: View) -> None:
    """Show every pending certificate request of a node, and why it is pending. Nothing is changed."""
    from hostler.cli.cluster import ask_cluster
    from hostler.join.commands import listed, verdicts_everywhere
    from hostler.join.model import Act

    spokes: tuple[str, ...] = settings[JOIN_SPOKES]

    def look() -> Listed[Judged]:
        found, problems = ask_cluster(
            settings, lambda client: verdicts_everywhere(client, _asked(client, settings), spokes)
        )
        approvable = any(one.act is Act.APPROVE for _, one in found)
        return Listed(
            [Judged(cluster, one) for cluster, one in found],
            data=lambda shown: [listed(one.verdict, one.cluster) for one in shown],
            notes=problems,
            nothing="No certificate request of a node is pending.",
            after=(BY_HAND,) if approvable else (),
        )

    show_list(view, look, REQUESTS)


@dataclass(frozen=True, slots=True)
class Expected:
    """A host that is expected, and whether the API server compared who says so with who wrote it."""

    host: ExpectedHost
    compared: bool


EXPECTED: Table[Expected] = Table(
    name=lambda expected: expected.host.name,
    columns=(
        Column("host", lambda expected: expected.host.name, needed=True),
        Column("since", lambda expected: age_of(expected.host.since, time.time()), order=2, ages=True,
               sort=lambda expected: expected.host.since),
        Column("until", lambda expected: expected.host.until, needed=True),
        Column("addresses", lambda expected: ", ".join(expected.host.addresses) or "-", order=1, least=16, wrap=True),
        sentence("by", lambda expected: _writer(expected.host.by, expected.compared)),
        Column("since at", lambda expected: expected.host.since, wide=True),
    ),
)  # fmt: skip


@app.command()
@flags.takes(*flags.CLUSTER)
@takes_view(EXPECTED.words)
def expect(
    settings: Settings,
    view: View,
    name: Host = "",
    address: Annotated[
        list[str] | None, typer.Option("--address", metavar="IP", help="An address it will have; may be repeated.")
    ] = None,
    span: Annotated[
        float,
        typer.Option("--for", parser=join_boot.SPAN, metavar="DURATION", help="How long it is expected: 90m, 1h30m."),
    ] = 7200.0,
    pending: Annotated[
        bool, typer.Option("--pending", help="Let in the request it has made already; a kubelet makes no second one.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Expect it no longer.")] = False,
) -> None:
    """Expect a host: its first certificate request within that time is approved by the operator, once.

    A request from before that is named, and let in only with --pending, or by `hostler join approve CSR`.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.join import commands

    if not name and not address and not remove:
        _show_expected(settings, view)
        return
    join_boot.node_name(name)
    if remove:
        there = ask_cluster(settings, lambda client: commands.unexpect(client, name))
        why = f"{name} is expected no longer." if there else f"{name} was not expected."
        from hostler.cli.answers import Unexpected

        print_answer(Unexpected(name, there), view.output, lambda: print_note(why), names=(name,))
        return
    addresses = tuple(_address(text) for text in address or ())
    made, waiting = ask_cluster(
        settings, lambda client: commands.expect(client, name, addresses, span, pending=pending)
    )
    if waiting and not pending:
        print_note(
            f"{', '.join(waiting)} asked for node {name} before, and stays pending: let it in with "
            f"`hostler join expect {name} --pending` or `hostler join approve {waiting[0]}`."
        )
    why = f"{name} is expected until {made.until}. Its requests are approved by an operator with --only join."
    print_answer(made, view.output, lambda: print_note(why), names=(name,))


def _show_expected(settings: Settings, view: View) -> None:
    import msgspec

    from hostler.cli.cluster import ask_cluster
    from hostler.join.commands import expected

    def look() -> Listed[Expected]:
        return Listed(
            [Expected(host, compared) for host, compared in ask_cluster(settings, expected)],
            data=lambda shown: [{**msgspec.to_builtins(one.host), "byProven": one.compared} for one in shown],
            nothing="No host is expected by name. Hosts of an inventory (docs/join.md) are expected without a name.",
        )

    show_list(view, look, EXPECTED)


def _writer(by: str, compared: bool) -> str:
    """Who expects it. A name that the API server did not compare proves nothing, and is shown as such."""
    if not by:
        return "-"
    return by if compared else f"claims to be {by}"


@app.command()
@flags.takes(*flags.CLUSTER, also=RULES)
def approve(
    settings: Settings,
    request: Annotated[str, typer.Argument(metavar="CSR", help="The request's name.", show_default=False)],
    cluster: Cluster = "",
    yes: Annotated[bool, typer.Option("--yes", help="Approve although a rule does not hold, without asking.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Approve one certificate request by hand, after every rule that does not hold was shown."""
    from hostler.cli.cluster import ask_cluster
    from hostler.join import commands
    from hostler.join.model import Outcome

    found, verdict = ask_cluster(settings, lambda client: _judged_in(client, settings, request, cluster))
    failed = [rule for rule in verdict.rules if rule.outcome is not Outcome.HOLDS]
    for rule in failed:
        print_note(f"{rule.name}: {rule.outcome}. {rule.why}.")
    _only_what_may_be(verdict)
    if failed and not yes:
        print_note(f"Whoever made this request becomes node {verdict.node}, with everything a node may do.")
        if not typer.confirm(f"Approve {request} all the same?", default=False, err=True):
            raise Complaint(f"{request} was not approved.", code=Exit.REFUSED)
    space = settings[NAMESPACE]
    if not ask_cluster(settings, lambda client: _approve_in(client, settings, found, verdict, cluster)):
        print_note(
            f"There is no namespace {space}, so no operator will remember it (--operator-namespace is the operator's)."
        )
    approved = {**commands.listed(verdict, cluster), "approved": True}
    print_answer(
        approved,
        output,
        lambda: print_note(f"{request} is approved: node {verdict.node}."),
        names=(f"certificatesigningrequest/{request}",),
    )


def _only_what_may_be(verdict: Verdict) -> None:
    """What has the wrong shape, or was asked for by another user than the node's, is not approved by hand either."""
    from hostler.join.model import Act

    if verdict.act is Act.DONE:
        raise Complaint(f"{verdict.csr} is not pending. {verdict.why}", code=Exit.REFUSED)
    if verdict.act is Act.IGNORE:
        raise Complaint(
            f"{verdict.csr} is not approved. {verdict.why}",
            hint="This is no request of a node that is to join; `kubectl certificate approve` would not ask.",
            code=Exit.REFUSED,
        )


@asynccontextmanager
async def _target(client: Client, settings: Settings, cluster: str) -> AsyncIterator[tuple[Client, Asked]]:
    """This cluster, or the further one of that name."""
    from hostler.join.commands import find_spoke, in_spoke

    asked = _asked(client, settings)
    if not cluster:
        yield client, asked
        return
    async with in_spoke(client, await find_spoke(client, cluster, asked.policy), asked.policy) as there:
        yield there


async def _judged_in(client: Client, settings: Settings, name: str, cluster: str) -> tuple[SigningRequest, Verdict]:
    async with _target(client, settings, cluster) as (there, asked):
        return await _judged(there, asked, name)


async def _approve_in(
    client: Client, settings: Settings, request: SigningRequest, verdict: Verdict, cluster: str
) -> bool:
    from hostler.join import commands

    async with _target(client, settings, cluster) as (there, asked):
        return await commands.approve(there, request, verdict, asked.namespace)


async def _judged(client: Client, asked: Asked, name: str) -> tuple[SigningRequest, Verdict]:
    from hostler.join import commands

    found = await commands.request_of(client, name)
    for verdict in await commands.verdicts(client, asked):
        if verdict.uid == found.metadata.uid:
            return found, verdict
    raise Complaint(f"{name} is not pending: it is decided already.", code=Exit.REFUSED)


def _asked(client: Client, settings: Settings) -> Asked:
    from hostler.join.capability import policy_of
    from hostler.join.commands import Asked

    return Asked(policy_of(settings, client.connection.server), settings[NAMESPACE], settings[JOIN_KUBELET_CA])


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise typer.BadParameter(f'"{text}" is no IP address') from None

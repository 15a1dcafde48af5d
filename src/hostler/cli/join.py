"""`hostler join`: who waits to become a node and why, who is expected, and approving by hand."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags, join_boot
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_table
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
    from hostler.join.commands import Asked
    from hostler.join.model import SigningRequest, Verdict
    from hostler.kube.client import Client

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


@app.command()
@flags.takes(*flags.CLUSTER, JOIN_SPOKES, also=RULES)
def csrs(settings: Settings, output: OutputFlag = Output.TABLE) -> None:
    """Show every pending certificate request of a node, and why it is pending. Nothing is changed."""
    from hostler.cli.cluster import ask_cluster
    from hostler.join.commands import listed, verdicts_everywhere
    from hostler.join.model import Act

    spokes: tuple[str, ...] = settings[JOIN_SPOKES]
    found, problems = ask_cluster(
        settings, lambda client: verdicts_everywhere(client, _asked(client, settings), spokes)
    )
    for problem in problems:
        print_note(problem)
    if output is Output.JSON:
        print_json([listed(verdict, cluster) for cluster, verdict in found])
        return
    if not found:
        print_note("No certificate request of a node is pending.")
        return
    where = bool(spokes)
    print_table(
        ("request", *(("cluster",) if where else ()), "kind", "node", "verdict", "why"),
        [
            (
                verdict.csr, *((cluster or "this one",) if where else ()), "serving" if verdict.serving else "client",
                verdict.node or "-", str(verdict.act), verdict.why,
            )
            for cluster, verdict in found
        ],
    )  # fmt: skip
    if any(verdict.act is Act.APPROVE for _, verdict in found):
        print_note(
            "Those to approve are approved by an operator with --only join; by hand: `hostler join approve CSR`."
        )


@app.command()
@flags.takes(*flags.CLUSTER)
def expect(
    settings: Settings,
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
    output: OutputFlag = Output.TABLE,
) -> None:
    """Expect a host: its first certificate request within that time is approved by the operator, once.

    A request from before that is named, and let in only with --pending, or by `hostler join approve CSR`.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.join import commands

    if not name and not address and not remove:
        _show_expected(settings, output)
        return
    join_boot.node_name(name)
    if remove:
        there = ask_cluster(settings, lambda client: commands.unexpect(client, name))
        if output is Output.JSON:
            print_json({"name": name, "removed": there})
        else:
            print_note(f"{name} is expected no longer." if there else f"{name} was not expected.")
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
    if output is Output.JSON:
        print_json(made)
    else:
        print_note(f"{name} is expected until {made.until}. Its requests are approved by an operator with --only join.")


def _show_expected(settings: Settings, output: Output) -> None:
    import msgspec

    from hostler.cli.cluster import ask_cluster
    from hostler.join.commands import expected

    found = ask_cluster(settings, expected)
    if output is Output.JSON:
        print_json([{**msgspec.to_builtins(host), "byProven": compared} for host, compared in found])
    elif found:
        rows = [
            (host.name, host.since, host.until, ", ".join(host.addresses) or "-", _writer(host.by, compared))
            for host, compared in found
        ]
        print_table(("host", "since", "until", "addresses", "by"), rows)
    else:
        print_note(
            "No host is expected by name. Hosts of an inventory (docs/join.md) are expected without being named."
        )


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
    if output is Output.JSON:
        print_json({**commands.listed(verdict, cluster), "approved": True})
    else:
        print_note(f"{request} is approved: node {verdict.node}.")


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

"""`hostler metal`: hosts and how many machines fit, by the operator's rules but without one; and an orderly end."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.capabilities import BY_NAME
from hostler.cli import flags
from hostler.cli.explain import ASKING
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_table, print_text
from hostler.cli.withdrawing import refuse_while_on
from hostler.errors import Complaint, Exit
from hostler.metal.settings import (
    METAL_FAST_TRACK,
    METAL_NAMESPACES,
    METAL_STRICT_FAILURE_DOMAINS,
    METAL_WATCH_FILTER,
)
from hostler.settings.model import Settings

app = typer.Typer(no_args_is_help=True, help="See bare metal hosts and how many machines fit.")
Within = Annotated[str, typer.Option("--in", metavar="NAMESPACE", help="Only the hosts of this namespace.")]
Template = Annotated[
    str, typer.Argument(metavar="NAMESPACE/TEMPLATE", help="A Metal3MachineTemplate.", show_default=False)
]


@app.callback()
def group() -> None:
    """See bare metal hosts and how many machines fit."""


@app.command()
@flags.takes(*flags.CLUSTER)
def hosts(settings: Settings, within: Within = "", output: OutputFlag = Output.TABLE) -> None:
    """Show every host: its state, who has it, where it is, and why it is unavailable."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.listing import list_hosts

    lines = ask_cluster(settings, lambda client: list_hosts(client, within or None))
    if output is Output.JSON:
        print_json(lines)
        return
    if not lines:
        print_note(f"There is no BareMetalHost in {f'namespace {within}' if within else 'this cluster'}.")
        return
    print_table(
        ("host", "state", "consumer", "failure domain", "last used", "why not available"),
        [
            (one.host, one.state, one.consumer, one.failure_domain, one.last_used, one.why_not_available)
            for one in lines
        ],
    )


@app.command()
@flags.takes(*flags.CLUSTER, METAL_STRICT_FAILURE_DOMAINS)
def capacity(settings: Settings, template: Template, output: OutputFlag = Output.TABLE) -> None:
    """Say how many machines of a template fit now, and what limits that."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.listing import measure_capacity

    strict = settings[METAL_STRICT_FAILURE_DOMAINS]
    found = ask_cluster(settings, lambda client: measure_capacity(client, template, strict=strict))
    if output is Output.JSON:
        print_json(found)
        return
    print_text(f"{found.fit} of {found.hosts} hosts are available now to machines of {found.template}.")
    if found.limits:
        print_table(("why not the others", "hosts"), [(why, str(number)) for why, number in found.limits.items()])


@app.command()
@flags.takes(*flags.CLUSTER, METAL_NAMESPACES, METAL_WATCH_FILTER, METAL_FAST_TRACK)
def takeover(
    settings: Settings,
    check: Annotated[bool, typer.Option("--check", help="Say what taking over would change.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Say what would change if metal took over from another Metal3 provider now. Writes nothing.

    What has to be done first: the provider is at work, its webhooks answer nobody, objects are stored in an older
    version. What Hostler would write on each host and machine, which machines would be ready no more, and what is out
    of the scope of --metal-namespaces and --metal-watch-filter. Exit code 1 while something has to be done first, else
    0. Taking over itself is switching metal on (docs/metal-migration.md).

    You need `list` on the kinds of Metal3 and Cluster API, `get` on customresourcedefinitions, and what shows whether
    the provider is there: deployments, leases, webhook configurations, endpointslices.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.incumbent import judge_incumbent
    from hostler.kube.client import Client
    from hostler.metal.migration.takeover import Effect, Line, takeover_lines
    from hostler.metal.scope import Scope
    from hostler.safety.incumbents import State

    if not check:
        raise typer.BadParameter("is needed: taking over is switching metal on", param_hint="--check")
    scope = Scope(settings[METAL_NAMESPACES], settings[METAL_WATCH_FILTER])

    async def look(client: Client) -> list[Line]:
        lines = await takeover_lines(client, scope, fast_track=settings[METAL_FAST_TRACK])
        verdicts = [await judge_incumbent(client, one) for one in BY_NAME["metal"].incumbents]
        there = [Line(Effect.FIRST, "provider", one.why) for one in verdicts if one.state is not State.ABSENT]
        gone = [Line(Effect.NOTE, "provider", one.why) for one in verdicts if one.state is State.ABSENT]
        order = list(Effect)
        return sorted([*there, *lines, *gone], key=lambda line: order.index(line.effect))

    found = ask_cluster(settings, look)
    if output is Output.JSON:
        print_json(found)
    else:
        print_table(("", "what", "why", "to mend it"), [(one.effect, one.what, one.why, one.fix) for one in found])
    first = [one for one in found if one.effect is Effect.FIRST]
    if first:
        raise typer.Exit(Exit.FAILED)


@app.command()
@flags.takes(*ASKING, METAL_NAMESPACES, METAL_WATCH_FILTER)
def withdraw(
    settings: Settings,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Take back what metal put on hosts, once it is switched off: before another provider takes over, or none.

    The annotation block-move, for which `clusterctl move` would wait for ever, and owner references to Metal3Machines,
    with which Kubernetes would delete a host after its machine. Nothing else of a host changes. From then until a
    provider runs again do not run `clusterctl move`: the hosts would be installed again. With the namespaces and the
    watch filter of an operator only what it looked after. You need `list`, `get` and
    `patch` on baremetalhosts.metal3.io, and `list` and `get` on clusters.cluster.x-k8s.io.

    Examples: `hostler metal withdraw` shows what it would do and asks; `hostler metal withdraw --yes --output json
    --operator http://hostler.example:8080` is for scripts.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.migration import leftovers
    from hostler.metal.scope import Scope

    scope = Scope(settings[METAL_NAMESPACES], settings[METAL_WATCH_FILTER])
    left = ask_cluster(settings, lambda client: leftovers.find_leftovers(client, scope))
    done = left.steps()
    if done:
        refuse_while_on(settings, "metal", yes=yes)
        leftovers.refuse_mid_move(left)
        for line in done:
            print_note(f"{line}.")
        print_note(leftovers.NO_MOVE)
        if not yes and not typer.confirm("Go on?", default=False, err=True):
            raise Complaint("Nothing was changed.", code=Exit.REFUSED)
        ask_cluster(settings, lambda client: leftovers.take_back(client, left))
    if output is Output.JSON:
        print_json({"done": done})
    else:
        print_note("Done." if done else "Nothing of metal is left on the hosts of this cluster.")

"""`hostler metal`: hosts and how many machines fit, by the operator's rules but without one; and an orderly end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.capabilities import BY_NAME
from hostler.cli import flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.explain import ASKING
from hostler.cli.listing import (
    Column,
    Listed,
    NamespaceFlag,
    Table,
    View,
    age_of,
    nothing_in,
    qualified,
    sentence,
    show_list,
    takes_view,
)
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note, print_table, print_text
from hostler.cli.withdrawing import print_done, refuse_while_on
from hostler.errors import Complaint, Exit
from hostler.metal.settings import (
    METAL_FAST_TRACK,
    METAL_NAMESPACES,
    METAL_STRICT_FAILURE_DOMAINS,
    METAL_WATCH_FILTER,
)
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.kube.client import Client
    from hostler.metal.listing import HostLine
    from hostler.metal.migration.takeover import Line

app = typer.Typer(no_args_is_help=True, help="See bare metal hosts and how many machines fit.")
Template = Annotated[
    str,
    typer.Argument(metavar="TEMPLATE", help="A Metal3MachineTemplate; NAMESPACE/NAME does too.", show_default=False),
]


@app.callback()
def group() -> None:
    """See bare metal hosts and how many machines fit."""


# What Baremetal Operator calls a host that needs nothing; `error` needs a person.
_TONES = dict.fromkeys(("available", "ready", "provisioned", "externally provisioned"), Tone.GOOD) | {
    "error": Tone.BAD, "new": Tone.QUIET, "unmanaged": Tone.QUIET,
}  # fmt: skip
HOSTS: Table[HostLine] = Table(
    name=lambda line: f"baremetalhost/{line.host}",
    columns=(
        Column("host", lambda line: line.host, needed=True),
        Column("state", lambda line: Cell(line.state, _TONES.get(line.state, Tone.BUSY)), needed=True),
        Column("consumer", lambda line: line.consumer, order=3),
        Column("failure domain", lambda line: line.failure_domain, order=2),
        Column("last used", lambda line: age_of(line.last_used, time.time()), order=1, ages=True,
               sort=lambda line: line.last_used),
        Column("last used at", lambda line: line.last_used, wide=True),
        sentence("why not available", lambda line: line.why_not_available),
    ),
)  # fmt: skip


@app.command()
@flags.takes(*flags.CLUSTER)
@takes_view(HOSTS.words, namespaces=True, labels=True)
def hosts(settings: Settings, view: View) -> None:
    """Show every host: its state, who has it, where it is, and why it is unavailable."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.listing import list_hosts

    async def look(client: Client) -> Listed[HostLine]:
        namespace = view.namespace_of(client)
        lines = await list_hosts(client, namespace, labels=view.selector_text)
        return Listed(lines, nothing=nothing_in("BareMetalHost", namespace, view))

    show_list(view, lambda: ask_cluster(settings, look), HOSTS)


@app.command()
@flags.takes(*flags.CLUSTER, METAL_STRICT_FAILURE_DOMAINS)
def capacity(
    settings: Settings, template: Template, namespace: NamespaceFlag = "", output: OutputFlag = Output.TABLE
) -> None:
    """Say how many machines of a template fit now, and what limits that."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.listing import measure_capacity

    strict = settings[METAL_STRICT_FAILURE_DOMAINS]
    found = ask_cluster(
        settings, lambda client: measure_capacity(client, qualified(template, namespace, client), strict=strict)
    )

    def show() -> None:
        print_text(f"{found.fit} of {found.hosts} hosts are available now to machines of {found.template}.")
        if found.limits:
            print_table(("hosts", "why not the others"), [(str(number), why) for why, number in found.limits.items()])

    print_answer(found, output, show, names=(found.template,))


_EFFECT_TONES = {"first": Tone.BAD, "write": Tone.BUSY, "judged": Tone.BUSY}
TAKEOVER: Table[Line] = Table(
    name=lambda line: line.what,
    columns=(
        Column("effect", lambda line: Cell(line.effect, _EFFECT_TONES.get(line.effect, Tone.NONE)), needed=True),
        Column("what", lambda line: line.what, needed=True, least=16, wrap=True),
        sentence("why", lambda line: line.why),
        Column("to mend it", lambda line: line.fix, order=80, least=20, needed=True, wrap=True, below=True),
    ),
)


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
    print_answer(
        found, output, lambda: TAKEOVER.show(found, wide=output is Output.WIDE), names=[line.what for line in found]
    )
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
    print_done(done, output, nothing="Nothing of metal is left on the hosts of this cluster.")

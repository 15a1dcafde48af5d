"""`hostler platform`: which nodes have cloud integration, where cloud-only DaemonSets may run, and an orderly end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.explain import ASKING, CONDITIONS
from hostler.cli.listing import Column, Listed, Table, View, sentence, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note, print_text
from hostler.cli.withdrawing import print_done, refuse_while_on
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import UNINITIALISED_GRACE_SECONDS
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.platform.status import ClassLine, ScopeLine

app = typer.Typer(no_args_is_help=True, help="See nodes with and without cloud integration side by side.")


@app.callback()
def group() -> None:
    """See nodes with and without cloud integration side by side."""


_TONES = {"in place": Tone.GOOD, "to be written": Tone.BUSY, "absent": Tone.QUIET}
DAEMON_SETS: Table[ScopeLine] = Table(
    name=lambda line: f"daemonset/{line.name}",
    columns=(
        Column("daemonset", lambda line: line.name, needed=True, least=20, wrap=True),
        Column("platform", lambda line: line.platform, order=4),
        Column("rule", lambda line: line.rule, order=1, least=20, wrap=True),
        Column("state", lambda line: Cell(line.state, _TONES.get(line.state, Tone.BAD)), needed=True),
        Column("way", lambda line: line.way, order=2),
        sentence("may run on", lambda line: line.may_run_words),
        Column("kept off", lambda line: line.kept_off_words, order=3, least=16, wrap=True),
        Column("why", lambda line: line.why, wide=True),
    ),
)
CLASSES: Table[ClassLine] = Table(
    name=lambda line: line.kind,
    columns=(
        Column("class", lambda line: line.kind, needed=True),
        Column("nodes", lambda line: str(len(line.nodes)), needed=True),
        sentence("names", lambda line: line.words),
    ),
)


@app.command()
@flags.takes(*flags.CLUSTER, UNINITIALISED_GRACE_SECONDS)
@takes_view(DAEMON_SETS.words, namespaces=True)
def status(settings: Settings, view: View) -> None:
    """Show nodes by class, scoped DaemonSets and where they may run, and what the operator last said of both."""
    import msgspec

    from hostler.cli.cluster import ask_cluster
    from hostler.platform.status import status_of

    wide = view.output is Output.WIDE

    def look() -> Listed[ScopeLine]:
        found = ask_cluster(settings, lambda client: status_of(client, settings[UNINITIALISED_GRACE_SECONDS]))

        def show_classes() -> None:
            CLASSES.show([line for line in found.classes if line.nodes], wide=wide)
            print_text("")

        def show_conditions() -> None:
            if found.conditions:
                print_text("")
                CONDITIONS.show(found.conditions, wide=wide)

        silent = (
            () if found.conditions else ("No operator has written a status of this: `hostler run --only platform`.",)
        )
        return Listed(
            [line for line in found.daemon_sets if view.is_in(line.namespace) or not line.namespace],
            data=lambda lines: msgspec.structs.replace(found, daemon_sets=tuple(lines)),
            above=show_classes,
            below=show_conditions,
            after=tuple(note for note in (found.note, found.node_deletion, *silent) if note),
        )

    show_list(view, look, DAEMON_SETS)


@app.command()
@flags.takes(*ASKING)
def withdraw(
    settings: Settings,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Take back what platform put into the cluster, once it is switched off or before Hostler goes.

    Its admission policies, its ClusterOperator, and the ClusterCSIDriver if that was set Unmanaged. What is in the
    DaemonSets stays until their owners write them again.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.platform import withdrawal

    left = ask_cluster(settings, withdrawal.find_leftovers)
    done = left.describe()
    if done:
        refuse_while_on(settings, "platform", yes=yes)
        for line in done:
            print_note(f"{line}.")
        if not yes and not typer.confirm("Go on?", default=False, err=True):
            raise Complaint("Nothing was changed.", code=Exit.REFUSED)
        ask_cluster(settings, lambda client: withdrawal.take_back_leftovers(client, left))
    print_done(done, output, nothing="Nothing of platform is left in this cluster.")


@app.command()
@flags.takes(*flags.CLUSTER)
def remove_driver(
    settings: Settings,
    driver: Annotated[
        str, typer.Argument(metavar="DRIVER", help="csi.vsphere.vmware.com, to say what is meant.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Uninstall OpenShift's vSphere CSI driver from the whole cluster, if no volume needs it.

    The storage operator is Degraded while a node is no VM; only this ends that. Volumes, attachments and storage
    classes in use refuse it, by name.
    """
    from hostler.cli.answers import DriverRemoved
    from hostler.cli.cluster import ask_cluster
    from hostler.platform import csi_driver, withdrawal

    found = ask_cluster(settings, withdrawal.find_driver)
    verdict = csi_driver.decide_removal(driver, found, ask_cluster(settings, withdrawal.find_use))
    if verdict.refused is not None or found is None:
        raise Complaint(verdict.why, hint=verdict.hint, code=Exit.REFUSED)
    print_note(verdict.why)
    if not verdict.done:
        if not yes and not typer.confirm("Go on?", default=False, err=True):
            raise Complaint("Nothing was changed.", code=Exit.REFUSED)
        ask_cluster(settings, lambda client: withdrawal.remove_driver(client, found))
    print_answer(
        DriverRemoved(driver, removed=True), output, lambda: print_note(f"It is put back with: {csi_driver.PUT_BACK}"),
        names=(driver,),
    )  # fmt: skip

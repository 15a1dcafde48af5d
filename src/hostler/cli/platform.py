"""`hostler platform`: which nodes have cloud integration, where cloud-only DaemonSets may run, and an orderly end."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags
from hostler.cli.explain import ASKING
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_table, print_text
from hostler.cli.withdrawing import refuse_while_on
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import UNINITIALISED_GRACE_SECONDS
from hostler.settings.model import Settings

app = typer.Typer(no_args_is_help=True, help="See nodes with and without cloud integration side by side.")


@app.callback()
def group() -> None:
    """See nodes with and without cloud integration side by side."""


@app.command()
@flags.takes(*flags.CLUSTER, UNINITIALISED_GRACE_SECONDS)
def status(settings: Settings, output: OutputFlag = Output.TABLE) -> None:
    """Show nodes by class, scoped DaemonSets and where they may run, and what the operator last said of both."""
    from hostler.cli.cluster import ask_cluster
    from hostler.platform.status import status_of

    found = ask_cluster(settings, lambda client: status_of(client, settings[UNINITIALISED_GRACE_SECONDS]))
    if output is Output.JSON:
        print_json(found)
        return
    print_table(
        ("class", "nodes", "names"),
        [(line.kind, str(len(line.nodes)), line.words) for line in found.classes if line.nodes],
    )
    print_text("")
    print_table(
        ("daemonset", "platform", "rule", "state", "way", "may run on", "kept off"),
        [
            (line.name, line.platform, line.rule, line.state, line.way, line.may_run_words, line.kept_off_words)
            for line in found.daemon_sets
        ],
    )
    for note in (found.note, found.node_deletion):
        if note:
            print_note(note)
    if found.conditions:
        print_text("")
        print_table(
            ("condition", "status", "reason", "message"),
            [
                (condition.type, str(condition.status), condition.reason, condition.message)
                for condition in found.conditions
            ],
        )
    else:
        print_note("No operator has said anything about this yet: `hostler run --only platform`.")


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
    if output is Output.JSON:
        print_json({"done": done})
    else:
        print_note("Done." if done else "Nothing of platform is left in this cluster.")


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
    if output is Output.JSON:
        print_json({"driver": driver, "removed": True})
    else:
        print_note(f"It is put back with: {csi_driver.PUT_BACK}")

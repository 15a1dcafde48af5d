"""`hostler platform status`: which nodes have cloud integration, and where cloud-only DaemonSets may run."""

from __future__ import annotations

import typer

from hostler.cli import flags, say
from hostler.settings.foundation import UNINITIALISED_GRACE_SECONDS
from hostler.settings.model import Settings

app = typer.Typer(no_args_is_help=True, help="See nodes with and without cloud integration side by side.")


@app.callback()
def group() -> None:
    """See nodes with and without cloud integration side by side."""


@app.command()
@flags.takes(*flags.CLUSTER, UNINITIALISED_GRACE_SECONDS)
def status(settings: Settings, output: say.OutputFlag = say.Output.TABLE) -> None:
    """Show nodes by class, scoped DaemonSets and where they may run, and what the operator last said of both."""
    from hostler.cli.cluster import ask_cluster
    from hostler.platform.look import status_of

    found = ask_cluster(settings, lambda client: status_of(client, settings[UNINITIALISED_GRACE_SECONDS]))
    if output is say.Output.JSON:
        say.json(found)
        return
    say.table(
        ("class", "nodes", "names"), [(one.kind, str(len(one.nodes)), one.words) for one in found.classes if one.nodes]
    )
    say.text("")
    say.table(
        ("daemonset", "platform", "rule", "state", "way", "may run on", "kept off"),
        [
            (one.name, one.platform, one.rule, one.state, one.way, one.may_run_words, one.kept_off_words)
            for one in found.daemon_sets
        ],
    )
    if found.note:
        say.note(found.note)
    if found.conditions:
        say.text("")
        say.table(
            ("condition", "status", "reason", "message"),
            [(one.type, str(one.status), one.reason, one.message) for one in found.conditions],
        )
    else:
        say.note("No operator has said anything about this yet: `hostler run --only platform`.")

"""`hostler explain`, `hostler plan` and `hostler status`: what the running operator knows and would do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from hostler.cli import flags, kinds
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, NamespaceFlag, Table, age_of, sentence
from hostler.cli.printing import Output, OutputFlag, print_answer, print_rich, print_table, print_text
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import LEASE_NAME, OPERATOR, SERVICE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from rich.tree import Tree

    from hostler.explain.registry import Answer, FactSeen
    from hostler.explain.wire import StatusAnswer
    from hostler.host.conditions import Condition

app = typer.Typer()
ASKING = (*flags.CLUSTER, LEASE_NAME, OPERATOR, SERVICE)
What = Annotated[
    str,
    typer.Argument(
        metavar="KIND/NAME",
        help="For example node/worker-3; also with kubectl's short names: no/worker-3, bmh/rack-a/host-1.",
        show_default=False,
        autocompletion=kinds.complete_thing,
    ),
]


@app.command()
@flags.takes(*ASKING)
def explain(settings: Settings, what: What, namespace: NamespaceFlag = "", output: OutputFlag = Output.TABLE) -> None:
    """Say why something was or was not done: every rule with the facts it saw."""
    _ask(settings, "explain", what, namespace, output)


@app.command()
@flags.takes(*ASKING)
def plan(settings: Settings, what: What, namespace: NamespaceFlag = "", output: OutputFlag = Output.TABLE) -> None:
    """Say what would be done next. Nothing is changed."""
    _ask(settings, "plan", what, namespace, output)


@app.command()
@flags.takes(*ASKING)
def status(settings: Settings, output: OutputFlag = Output.TABLE) -> None:
    """Show the fleet at a glance: conditions, capabilities, who leads, what is out of service."""
    from hostler.apis.fleet import NAME as FLEET_NAME
    from hostler.cli.cluster import ask_operator
    from hostler.explain.wire import StatusAnswer

    try:
        answer = ask_operator(settings, "/v1/status", StatusAnswer)
    except Complaint as complaint:
        from hostler.cli import without_operator

        answer = without_operator.read_instead(settings, complaint, without_operator.read_status)
    names = (f"fleet/{FLEET_NAME}",)
    print_answer(answer, output, lambda: _show_status(answer, wide=output is Output.WIDE), names=names)


def _ask(settings: Settings, verb: str, what: str, namespace: str, output: Output) -> None:
    kind, slash, name = what.partition("/")
    if not (kind and slash and name):
        raise Complaint(
            f'"{what}" is not KIND/NAME.', hint=f"For example: hostler {verb} node/worker-3", code=Exit.USAGE
        )
    from hostler.cli.cluster import ask_operator
    from hostler.cli.unmanaged import in_namespace, node_of_vm, why_unmanaged
    from hostler.explain.client import NotKnown
    from hostler.explain.registry import Answer

    about = kinds.spelled(kind)
    name = in_namespace(settings, about, name, namespace)
    if about.name == "vm":  # what is decided about a VM is decided about its node
        about, name = kinds.spelled("node"), node_of_vm(settings, name)
    try:
        answer = ask_operator(settings, f"/v1/{verb}/{quote(about.name, safe='')}/{quote(name, safe='/')}", Answer)
    except NotKnown as unknown:
        raise why_unmanaged(settings, about, name) or unknown from None
    except Complaint as complaint:
        from hostler.cli import without_operator

        if verb != "explain" or about.name != "node":  # nothing on the object says what would be decided
            raise
        answer = without_operator.read_instead(
            settings, complaint, lambda client: without_operator.read_node(client, name)
        )
    print_answer(answer, output, lambda: print_rich(tree_of(answer)), names=(f"{answer.kind}/{answer.name}",))


def tree_of(answer: Answer) -> Tree:
    """An answer as a tree: capability, then rules with their facts, then what would be done."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(f"{answer.kind}/{answer.name}", style="bold"))
    for note in answer.notes:
        tree.add(Text(note, style="yellow"))
    for one in answer.explanations:
        branch = tree.add(Text.assemble((one.capability, "bold"), f": {one.outcome}"))
        for fact in one.facts:
            branch.add(Text(_fact(fact)))
        for rule in one.rules:
            mark = "=> " if rule.decided else ""
            leaf = branch.add(
                Text(f"{mark}{rule.name}: {rule.outcome}. {rule.why}", style="bold" if rule.decided else "")
            )
            for fact in rule.facts:
                leaf.add(Text(_fact(fact)))
        for action in one.actions:
            back = f" (held back: {action.held_back})" if action.held_back else ""
            branch.add(Text(f"would {action.verb} {action.target}: {action.why}{back}"))
    return tree


def _fact(fact: FactSeen) -> str:
    if not fact.known:
        return f"{fact.name}: unknown, {fact.why}"
    aged = f" ({fact.age_seconds:g} s ago)" if fact.age_seconds is not None else ""
    return f"{fact.name} = {fact.value}{aged}"


CONDITIONS: Table[Condition] = Table(
    name=lambda condition: condition.type,
    columns=(
        Column("condition", lambda condition: condition.type, needed=True),
        Column("status", lambda condition: str(condition.status), needed=True),
        Column("age", lambda condition: age_of(condition.last_transition_time, time.time()), order=2, ages=True),
        Column("reason", lambda condition: condition.reason, order=3),
        sentence("message", lambda condition: condition.message),
        Column("since", lambda condition: condition.last_transition_time, wide=True),
    ),
)


def _show_status(answer: StatusAnswer, *, wide: bool) -> None:
    shown = answer.status
    counts = shown.counts
    print_table(
        ("", ""),
        [
            ("operator", f"{answer.identity or 'none answers'}, version {answer.version or 'unknown'}"),
            ("leader" if answer.identity else "last leader", shown.leader or "nobody"),
            ("this replica" if answer.identity else "known", answer.leadership),
            ("dry run", _dry_run(answer)),
            ("paused", answer.pause),
            ("nodes", f"{counts.nodes}, of these {counts.held} held and {counts.unavailable} out of service by us"),
            ("ceiling", f"{counts.unavailable} of {counts.ceiling} used"),
        ],
    )
    print_text("")
    CONDITIONS.show(shown.conditions, wide=wide)
    print_text("")
    here = (
        answer.leads and not answer.dry_run
    ) or not answer.identity  # "may write" is the fleet's standing; this replica may have to wait
    print_table(
        ("capability", "on", "writes", "why"),
        [
            (one.name, _on(one.enabled), _writes(one.writes, here, answer.dry_run), one.reason)
            for one in shown.capabilities
        ],
    )


def _on(enabled: bool) -> Cell:
    return Cell("yes", Tone.GOOD) if enabled else Cell("no", Tone.QUIET)


def _dry_run(answer: StatusAnswer) -> str:
    if not answer.identity:
        return "not known"
    return "yes: nothing is written" if answer.dry_run else "no"


def _writes(may: bool, here: bool, dry_run: bool) -> str:
    if not may or here:
        return _yes(may)
    return "no: dry run" if dry_run else "the leader"


def _yes(on: bool) -> str:
    return "yes" if on else "no"

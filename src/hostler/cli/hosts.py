"""`hostler hosts` and `hostler host`: one picture of every host."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from hostler.cli import explain, flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_columns, print_note, print_table, print_text
from hostler.errors import Complaint, Exit
from hostler.inventory.states import STATE_ORDER, HostKind, HostState, SortBy
from hostler.settings.foundation import CLUSTER_NAME
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from hostler.inventory.wire import HostAnswer, HostRow, HostsAnswer
    from hostler.kube.client import Client

app = typer.Typer()
# At most this many names in one cell; the rest is counted.
HOLDERS_SHOWN = 2
TIMELINE = 20  # entries below a host


State = Annotated[list[HostState], typer.Option("--state", help="Only hosts in this state; repeatable.")]
Kind = Annotated[list[HostKind], typer.Option("--kind", help="Only hosts of this kind; repeatable.")]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME", help="Only hosts of this Kubernetes cluster.")]
Late = Annotated[bool, typer.Option("--overdue", help="Only hosts that stay longer in their state than they should.")]
Out = Annotated[bool, typer.Option("--out", help="Only hosts that are not in service.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A host, by its id or by the name of its node, VM or ESXi host.",
        show_default=False,
        autocompletion=lambda ctx, incomplete: complete_host(ctx, incomplete),
    ),
]


@dataclass(frozen=True, slots=True)
class Shown:
    """A row, and when the answer was made that it is of."""

    row: HostRow
    now: float


_TONES = {
    HostState.FAILED: Tone.BAD, HostState.UNKNOWN: Tone.BAD, HostState.IN_SERVICE: Tone.GOOD,
    HostState.PROVISIONED: Tone.GOOD, HostState.DISCOVERED: Tone.QUIET, HostState.AVAILABLE: Tone.QUIET,
}  # fmt: skip


def _state_cell(shown: Shown) -> Cell:
    state = shown.row.host.state
    return Cell(state, Tone.BAD if shown.row.overdue is not None else _TONES.get(state, Tone.BUSY))


def _since_text(shown: Shown) -> str:
    from hostler.inventory.listing import age_text

    return age_text(shown.row.host.since, shown.now) + (" overdue" if shown.row.overdue is not None else "")


def _late_text(shown: Shown) -> str:
    from hostler.inventory.listing import age_text

    overdue = shown.row.overdue
    return "" if overdue is None else age_text(shown.now - overdue.by, shown.now)


def _where_text(shown: Shown) -> str:
    from hostler.inventory.listing import where_of

    return where_of(shown.row, brief=True)


def _place_text(shown: Shown) -> str:
    from hostler.inventory.listing import where_of

    return where_of(shown.row)


def _holders_text(shown: Shown) -> str:
    holders = [holder.name for holder in shown.row.host.holders]
    more = f" +{len(holders) - HOLDERS_SHOWN}" if len(holders) > HOLDERS_SHOWN else ""
    return ", ".join(holders[:HOLDERS_SHOWN]) + more


def _safe_text(shown: Shown) -> str:
    return shown.row.safe_to_stop.answer if shown.row.safe_to_stop is not None else ""


# A line for each host, however long its sentence: there are thousands.
HOSTS: Table[Shown] = Table(
    name=lambda shown: shown.row.host.id,
    columns=(
        Column("name", lambda shown: shown.row.host.name, order=4, least=16, needed=True),
        Column("kind", lambda shown: shown.row.host.kind, order=2),
        Column("state", _state_cell, needed=True, sort=lambda shown: STATE_ORDER[shown.row.host.state]),
        Column("since", _since_text, needed=True, ages=True, sort=lambda shown: shown.row.host.since or float("inf")),
        Column("where", _where_text, order=1, least=10, keep_end=True, sort=_place_text),
        Column("held by", _holders_text, order=3, least=14),
        Column("stop?", _safe_text, order=5),
        Column("why", lambda shown: shown.row.host.why, order=6, least=36, needed=True),
        Column("cluster", lambda shown: shown.row.host.cluster, wide=True),
        Column("overdue by", _late_text, wide=True, ages=True),
        Column("place", _place_text, wide=True),
        Column("next", lambda shown: shown.row.host.next, wide=True),
        Column("id", lambda shown: shown.row.host.id, wide=True),
    ),
)


@app.command("fleet", hidden=True)
@app.command("hosts")
@flags.takes(*explain.ASKING, CLUSTER_NAME)
@takes_view(HOSTS.words, namespaces=True, labels=True)
def list_hosts(
    settings: Settings,
    view: View,
    state: State = [],  # noqa: B006
    kind: Kind = [],  # noqa: B006
    cluster: Cluster = "",
    overdue: Late = False,
    out: Out = False,
) -> None:
    """Show every host: what it is, its state and since when, who has it, and whether it is safe to stop.

    Examples: `hostler hosts --out --sort-by since` is what is out of service now, the oldest first; `hostler hosts
    --state stopped --overdue -o name` is for scripts; `hostler hosts -l rack=r7 --watch` follows one rack.
    """
    import msgspec

    from hostler.cli.cluster import ask_cluster, ask_operator
    from hostler.inventory.listing import Filter, select_rows, summarise_rows
    from hostler.inventory.wire import HostsAnswer

    wanted = Filter(frozenset(state), frozenset(kind), cluster, overdue, out, view.selector)
    # Of most answers the labels are the most, and a table does not show them.
    path = "/v1/hosts?labels=all" if view.selector or view.output.is_data else "/v1/hosts"

    def look() -> Listed[Shown]:
        try:
            answer = ask_operator(settings, path, HostsAnswer)
        except Complaint as complaint:
            if complaint.code is not Exit.UNREACHABLE:
                raise
            answer = ask_cluster(settings, lambda client: _look(client, settings[CLUSTER_NAME]))
            print_note(f"{complaint.sentence} {complaint.hint}".strip())
        rows = [row for row in select_rows(answer.hosts, wanted, SortBy.NAME) if view.is_in(row.host.where.namespace)]
        return Listed(
            [Shown(row, answer.at) for row in rows],
            data=lambda shown: msgspec.structs.replace(answer, hosts=tuple(one.row for one in shown)),
            notes=(*answer.notes, summarise_rows(rows)),
        )

    show_list(view, look, HOSTS)


def _look(client: Client, cluster: str) -> Coroutine[None, None, HostsAnswer]:
    """What the objects tell; its libraries are loaded only where there is no operator."""
    from hostler.inventory.look import hosts_of_objects
    from hostler.metal.host_layers import look_at_metal
    from hostler.reclaim.host_layers import look_at_agents

    return hosts_of_objects(client, cluster, (look_at_metal, look_at_agents), time.time())


@app.command("host")
@flags.takes(*explain.ASKING)
def show_host(settings: Settings, name: Name, output: OutputFlag = Output.TABLE) -> None:
    """Show everything about one host: its layers, state, holders, whether it is safe to stop, and what happened to it.

    Examples: `hostler host gpu-7`; `hostler host esx1 -o json`.
    """
    from hostler.cli.cluster import ask_operator
    from hostler.inventory.wire import HostAnswer

    answer = ask_operator(settings, f"/v1/hosts/{quote(name, safe='')}", HostAnswer)

    def show() -> None:
        _print_host(answer)
        _print_timeline(settings, answer.row.host.id)

    print_answer(answer, output, show, names=(answer.row.host.id,))


def _print_host(answer: HostAnswer) -> None:
    from hostler.inventory.listing import age_text, where_of

    row, now = answer.row, answer.at
    host, safe = row.host, row.safe_to_stop
    for note in answer.notes:
        print_note(note)
    print_text(f"{host.name}: {host.state}{f' for {age}' if (age := age_text(host.since, now)) else ''}. {host.why}")
    if row.overdue is not None:
        print_text(f"Overdue by {age_text(now - row.overdue.by, now)}: longer than {row.overdue.why}.")
    facts = [
        ("id", host.id), ("kind", host.kind), ("where", where_of(row)), ("cluster", host.cluster), ("node", host.node),
        ("decided by", host.capability), ("next", host.next), ("waiting for", host.waiting),
        ("safe to stop", f"{safe.answer}: {safe.why}" if safe is not None else ""),
        *(("held by", f"{holder.name}: {holder.why} ({age_text(holder.since, now)})") for holder in host.holders),
        *(("problem", problem) for problem in host.problems),
        *(("note", note) for note in host.notes),
        *(("layer", layer.key) for layer in answer.layers),
    ]  # fmt: skip
    print_table(("", ""), [fact for fact in facts if fact[1]])


def _print_timeline(settings: Settings, host: str) -> None:
    """The last changes of a host, the newest first."""
    from datetime import UTC, datetime

    from hostler.cli.cluster import ask_operator
    from hostler.cli.columns import LEAST_SENTENCE, terminal_width
    from hostler.cli.columns import Column as Layout
    from hostler.history.wire import HistoryAnswer
    from hostler.inventory.listing import age_text

    try:
        answer = ask_operator(settings, f"/v1/history?{urlencode({'host': host, 'most': TIMELINE})}", HistoryAnswer)
    except Complaint as complaint:  # the host is shown all the same
        print_note(f"What happened to it cannot be shown: {complaint.sentence}")
        return
    if not answer.entries:
        return
    rows = [
        [
            datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            f"{entry.old or '-'} -> {entry.new}" if entry.new else str(entry.what),
            "" if entry.duration is None else age_text(0.0, entry.duration),
            entry.sentence,
        ]
        for entry in answer.entries
    ]
    columns = [
        Layout("time (utc)", needed=True), Layout("what", needed=True), Layout("after", order=1),
        Layout("why", order=2, least=LEAST_SENTENCE, needed=True, wrap=True),
    ]  # fmt: skip
    print_text("")
    print_columns(columns, rows, terminal_width())
    if not answer.complete:
        print_note(f"These are the newest {TIMELINE}; `hostler history {host} --since 30d` shows more.")


def complete_host(context: typer.Context, incomplete: str) -> list[str]:
    """Names of hosts for the shell; none where nobody can be asked."""
    from hostler.cli.cluster import ask_operator
    from hostler.inventory.wire import HostsAnswer
    from hostler.settings.resolve import resolve

    given = {
        setting.key: str(text) for setting in explain.ASKING if (text := context.params.get(setting.key)) is not None
    }
    try:
        answer = ask_operator(resolve(given, os.environ, table=explain.ASKING), "/v1/hosts", HostsAnswer)
    except Exception:  # noqa: BLE001 # a shell that completes must not show an error
        return []
    return sorted({row.host.name for row in answer.hosts if row.host.name.startswith(incomplete)})

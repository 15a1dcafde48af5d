"""`hostler hosts` and `hostler host`: one picture of every host."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from hostler.cli import explain, flags
from hostler.cli.printing import print_json, print_note, print_table, print_text
from hostler.errors import Complaint, Exit
from hostler.inventory.states import HostKind, HostState, SortBy
from hostler.settings.foundation import CLUSTER_NAME
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from hostler.cli.columns import Column
    from hostler.inventory.wire import HostAnswer, HostRow, HostsAnswer
    from hostler.kube.client import Client
    from hostler.selectors import Requirement

app = typer.Typer()
WATCH_SECONDS = 2.0
# At most this many names in one cell; the rest is counted.
HOLDERS_SHOWN = 2
TIMELINE = 20  # entries below a host


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


State = Annotated[list[HostState], typer.Option("--state", help="Only hosts in this state; repeatable.")]
Kind = Annotated[list[HostKind], typer.Option("--kind", help="Only hosts of this kind; repeatable.")]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME", help="Only hosts of this Kubernetes cluster.")]
Late = Annotated[bool, typer.Option("--overdue", help="Only hosts that stay longer in their state than they should.")]
Out = Annotated[bool, typer.Option("--out", help="Only hosts that are not in service.")]
Selector = Annotated[str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Labels, as kubectl takes them.")]
Sort = Annotated[SortBy, typer.Option("--sort-by", help="What the list is sorted by.")]
Watching = Annotated[bool, typer.Option("--watch", "-w", help="Again at every change, until Ctrl-C.")]
OutputFlag = Annotated[Output, typer.Option("--output", "-o", help="How to print.", case_sensitive=False)]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A host, by its id or by the name of its node, VM or ESXi host.",
        show_default=False,
        autocompletion=lambda ctx, incomplete: complete_host(ctx, incomplete),
    ),
]


@app.command("fleet", hidden=True)
@app.command("hosts")
@flags.takes(*explain.ASKING, CLUSTER_NAME)
def list_hosts(
    settings: Settings,
    state: State = [],  # noqa: B006
    kind: Kind = [],  # noqa: B006
    cluster: Cluster = "",
    overdue: Late = False,
    out: Out = False,
    selector: Selector = "",
    sort_by: Sort = SortBy.NAME,
    watch: Watching = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show every host: what it is, its state and since when, who has it, and whether it is safe to stop.

    Examples: `hostler hosts --out --sort-by since` is what is out of service now, the oldest first; `hostler hosts
    --state stopped --overdue -o name` is for scripts; `hostler hosts -l rack=r7 --watch` follows one rack.
    """
    from hostler.cli.cluster import ask_cluster, ask_operator
    from hostler.inventory.listing import Filter, select_rows
    from hostler.inventory.wire import HostsAnswer

    wanted = Filter(frozenset(state), frozenset(kind), cluster, overdue, out, _selector_of(selector))

    # Of most answers the labels are the most, and a table does not show them.
    path = "/v1/hosts?labels=all" if selector or output in (Output.JSON, Output.YAML) else "/v1/hosts"
    shown: object = None
    while True:
        try:
            answer = ask_operator(settings, path, HostsAnswer)
        except Complaint as complaint:
            if complaint.code is not Exit.UNREACHABLE:
                raise
            answer = ask_cluster(settings, lambda client: _look(client, settings[CLUSTER_NAME]))
            print_note(f"{complaint.sentence} {complaint.hint}".strip())
        rows = select_rows(answer.hosts, wanted, sort_by)
        seen = [_what_counts(row) for row in rows]
        if seen != shown:
            shown = seen
            if watch and sys.stdout.isatty() and output in (Output.TABLE, Output.WIDE):
                sys.stdout.write("\x1b[2J\x1b[H")
            _print_rows(rows, answer, output)
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


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
    if output is Output.NAME:
        print_text(answer.row.host.id)
    elif output in (Output.JSON, Output.YAML):
        print_data(answer, output)
    else:
        _print_host(answer)
        _print_timeline(settings, answer.row.host.id)


def _selector_of(text: str) -> tuple[Requirement, ...]:
    from hostler.selectors import parse_selector

    try:
        return parse_selector(text) if text else ()
    except ValueError as error:
        raise typer.BadParameter(f"{error}") from None


def _print_rows(rows: list[HostRow], answer: HostsAnswer, output: Output) -> None:
    if output is Output.NAME:
        for row in rows:
            print_text(row.host.id)
        return
    if output in (Output.JSON, Output.YAML):
        import msgspec

        print_data(msgspec.structs.replace(answer, hosts=tuple(rows)), output)
        return
    from hostler.inventory.listing import summarise_rows

    for note in answer.notes:
        print_note(note)
    print_note(summarise_rows(rows))
    if not rows:
        return
    from hostler.cli.columns import fit, terminal_width

    wide = output is Output.WIDE
    cells = [_cells(row, answer.at, wide) for row in rows]
    print_text("\n".join(fit(_columns(wide), cells, None if wide else terminal_width())))


def _columns(wide: bool) -> list[Column]:
    """What is cut first tells least; why a host is where it is, is cut last."""
    from hostler.cli.columns import Column

    shown = [
        Column("name", 4, 16, needed=True), Column("kind", 2, 10), Column("state"), Column("since"),
        Column("where", 1, 12, keep_end=True), Column("held by", 3, 8), Column("stop?"),
        Column("why", 5, 36, needed=True),
    ]  # fmt: skip
    return [*shown, Column("cluster"), Column("next"), Column("id")] if wide else shown


def _what_counts(row: HostRow) -> tuple[object, ...]:
    """What a change of is worth printing again: not the times of judgements."""
    safe = row.safe_to_stop
    return row.host, row.overdue is not None, None if safe is None else (safe.answer, safe.why)


def _cells(row: HostRow, now: float, wide: bool) -> list[str]:
    from hostler.inventory.listing import age_text, where_of

    host, safe = row.host, row.safe_to_stop
    late = "" if row.overdue is None else f" overdue by {age_text(now - row.overdue.by, now)}" if wide else " overdue"
    holders = [holder.name for holder in host.holders]
    more = f" +{len(holders) - HOLDERS_SHOWN}" if len(holders) > HOLDERS_SHOWN else ""
    cells = [
        host.name, host.kind, host.state, age_text(host.since, now) + late, where_of(row, brief=not wide),
        ", ".join(holders[:HOLDERS_SHOWN]) + more, safe.answer if safe is not None else "", host.why,
        *((host.cluster, host.next, host.id) if wide else ()),
    ]  # fmt: skip
    return [one_line(cell) for cell in cells]


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
    from hostler.cli.columns import Column, fit, terminal_width
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
            one_line(entry.sentence),
        ]
        for entry in answer.entries
    ]
    columns = [Column("time (utc)"), Column("what"), Column("after", 1, 5), Column("why", 2, 20, needed=True)]
    print_text("\n".join(["", *fit(columns, rows, terminal_width())]))
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


def one_line(text: str) -> str:
    """In one line: a text of others may have several."""
    return " ".join(text.split())


def print_data(data: object, output: Output) -> None:
    if output is Output.JSON:
        print_json(data)
        return
    import msgspec
    import yaml

    print_text(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True))

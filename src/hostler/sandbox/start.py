"""Brings a sandbox up: from nothing, or after a crash, or not at all because it runs already."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

import msgspec

from hostler.errors import Complaint, Exit
from hostler.sandbox import build
from hostler.sandbox.capi import components, install_providers
from hostler.sandbox.certs import write_secret
from hostler.sandbox.crds import check_names, install_crds
from hostler.sandbox.fleet import read_fleet
from hostler.sandbox.life import clear, locked, new_state
from hostler.sandbox.load import load_fleet
from hostler.sandbox.model import EXTRAS, LOCK, MADE, Layout, Options, State, read_state
from hostler.sandbox.parts import MANAGERS

if TYPE_CHECKING:
    from hostler.sandbox.life import Sandbox

CONTROL_PLANE = ("etcd", "kube-apiserver")


def bring_up(
    cls: type[Sandbox], layout: Layout, options: Options, progress: build.Progress, asked: Collection[str] | None
) -> Sandbox:
    """The one way in. Leaves either a sandbox that is ready, or nothing running and a sentence.

    `asked` names the options somebody gave; one that is there goes on with its own where nobody asked otherwise.
    """
    _make_folder(layout)
    with locked(layout):
        state = read_state(layout)
        if state is not None and state.complete:
            return _continue(cls(layout, state), options, progress, asked)
        if state is not None:
            # A first `up` that did not come to its end: what it left running is ended, what it left behind removed.
            cls(layout, state).end_parts()
            clear(layout)
        return _first(cls, layout, options, progress)


def _first(cls: type[Sandbox], layout: Layout, options: Options, progress: build.Progress) -> Sandbox:
    # Everything a person may have got wrong is found before anything starts.
    fleet = read_fleet(options.fleet)
    check_names(options.crds)
    check_extras(options.extras)
    inventory = fleet.inventory() if options.vcenter else None
    wanted = ["controlplane", *(["vcenter"] if inventory else []), *options.extras]
    programs = {program: str(build.ensure(program, progress)) for program in wanted}
    if "capi" in options.extras:
        components(progress)
    begin = time.monotonic()
    box = cls(layout, new_state(layout, options, programs, has_vcenter=inventory is not None))
    if inventory is not None:
        write_secret(layout.conf / "inventory.json", msgspec.json.encode(inventory))
    try:
        _start_all(box, [name for name in box.part_names if name not in MANAGERS])
        managers = [name for name in box.part_names if name in MANAGERS]
        with _timed(box, "crds"):
            if "capi" in options.extras:
                install_providers(box, progress)
            install_crds(box, [name for name in options.crds if name not in options.extras], progress)
        with _timed(box, "extras"):
            for name in managers:  # they would end themselves where their CRDs are missing
                box.start(name)
            box.wait_ready(only=managers)
        with _timed(box, "fleet"):
            load_fleet(box, fleet, progress)
        box.wait_ready()
    except BaseException:
        box.end_parts()
        raise
    box.state.complete = True
    box.save()
    box.timings["all"] = round(time.monotonic() - begin, 2)
    box.news = f"The sandbox is up, in {box.timings['all']:.1f} s."
    return box


def check_extras(wanted: Sequence[str]) -> None:
    """Refuse what `--with` does not know."""
    for name in wanted:
        if name not in EXTRAS:
            raise Complaint(f"There is no {name!r} to add.", hint=f"--with knows {', '.join(EXTRAS)}.", code=Exit.USAGE)


def _start_all(box: Sandbox, names: Sequence[str]) -> None:
    """etcd and the API server together (it waits for etcd by itself), the rest once there is somebody to talk to."""
    with _timed(box, "control plane"):
        for name in names:
            if name in (*CONTROL_PLANE, "vcenter"):
                box.start(name)
        box.wait_ready(only=[name for name in names if name in (*CONTROL_PLANE, "vcenter")])
    with _timed(box, "controllers"):
        for name in names:
            box.start(name)
        box.wait_ready(only=list(names))


def _continue(box: Sandbox, options: Options, progress: build.Progress, asked: Collection[str] | None) -> Sandbox:
    """A sandbox that was complete once: refuse other settings, bring back what is dead."""
    wants, has = msgspec.structs.asdict(options), msgspec.structs.asdict(box.state.options)
    if different := [name for name in wants if wants[name] != has[name] and (asked is None or name in asked)]:
        changes = ", ".join(f"{name.replace('_', '-')} is {has[name]!r}, not {wants[name]!r}" for name in different)
        folder = quote(str(box.layout.root))
        raise Complaint(
            f"There is a sandbox in {box.layout.root} already, with other settings: {changes}.",
            hint=f"`hostler sandbox up --dir {folder}` alone goes on with it as it is; `hostler sandbox down --dir "
            f"{folder}` ends it and deletes its data; another --dir leaves it alone.",
            code=Exit.REFUSED,
        )
    dead = [name for name in box.part_names if not box.alive(name)]
    if not dead:
        box.news = "The sandbox runs already."
        return box
    _forget_missing_programs(box.state, progress)
    begin = time.monotonic()
    _start_all(box, box.part_names)
    box.timings["all"] = round(time.monotonic() - begin, 2)
    box.news = f"Brought back {', '.join(dead)}, in {box.timings['all']:.1f} s."
    return box


def _forget_missing_programs(state: State, progress: build.Progress) -> None:
    """The cache may have been cleaned since: build what is gone, from today's sources."""
    for program in state.programs:
        state.programs[program] = str(build.ensure(program, progress))


def _make_folder(layout: Layout) -> None:
    root = layout.root
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = sorted(path.name for path in root.iterdir() if path.name not in (*MADE, LOCK))
    except OSError as error:
        raise Complaint(
            f"{root} cannot be used for a sandbox: {error.strerror}.", hint="Choose another --dir.", code=Exit.SETTING
        ) from error
    if foreign and not layout.state.exists():
        raise Complaint(
            f"{root} is not empty (it holds {foreign[0]}), and a sandbox wants a folder of its own.",
            hint="Name a new folder with --dir.",
            code=Exit.SETTING,
        )
    root.chmod(0o700)


@contextmanager
def _timed(box: Sandbox, step: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    box.timings[step] = round(time.monotonic() - begin, 2)

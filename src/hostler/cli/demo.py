"""`hostler demo`, which is `make run`: the sandbox with a small mixed fleet, the operator on it, and a story to watch.

Everything the story does is a command a person could type; each is printed before it runs. With KUBECONFIG set there
is no sandbox and no story: the operator looks at that cluster in a dry run, and says what it would do.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli.columns import Column, fit, terminal_width
from hostler.cli.printing import print_note
from hostler.errors import Complaint, Exit

if TYPE_CHECKING:
    from hostler.sandbox import Sandbox

app = typer.Typer()

# No other operator can hold the lease of a sandbox, so the demo need not wait the usual 15 seconds for it.
LEASE = {"HOSTLER_LEASE_DURATION_SECONDS": "4", "HOSTLER_LEASE_RENEW_SECONDS": "3", "HOSTLER_LEASE_RETRY_SECONDS": "1"}
HERE = Path(".sandbox/demo")
LAST_LINES = 10  # of the log of an operator that ended
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CRDS = ("agents", "capi", "metal3")
FLEET = "apiVersion: hostler.dev/v1alpha1\nkind: Fleet\nmetadata: {name: cluster}\nspec: {}\n"

# What to try after the story, and what it shows. HOSTLER stands for how the program is called there.
NEXT = (
    ("HOSTLER status", "what is on, who leads, what the ceiling leaves"),
    ("HOSTLER hosts --watch", "every host, live"),
    ("HOSTLER explain node/gpu-1", "every rule with its facts"),
    ("HOSTLER plan node/metal-0", "what a drain would do, pod by pod"),
    ("HOSTLER drain metal-0 --timeout 30s", "and see the budget that blocks it, by name"),
    ('HOSTLER pause --why "lunch"', "the stop button; `resume` lets it go on"),
    ("HOSTLER maintenance plan esx1", "what would happen if that ESXi host entered maintenance now"),
    ("HOSTLER metal hosts -A", "every bare metal host: whose it is, or why it is unavailable"),
    ("HOSTLER sandbox maintenance enter esx1", "and let it; watch with `HOSTLER maintenance status --watch`"),
    ("HOSTLER sandbox --help", "the sandbox is yours: kill parts of it, too"),
)


@app.command()
def demo(
    dir: Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Folder of the sandbox.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End after the story instead of waiting for Ctrl-C.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox running at the end.")] = False,
) -> None:
    """Watch Hostler at work: in a sandbox of its own, or with KUBECONFIG set on that cluster in a dry run."""
    if os.environ.get("KUBECONFIG"):
        if dir is not None or once or keep:
            raise typer.BadParameter("KUBECONFIG is set, so there is no sandbox: unset it, or leave these options out")
        _look_only()
        return
    from hostler.sandbox import Options, Sandbox
    from hostler.sandbox.build import Lines

    dir = dir or HERE
    _refuse_running_sandbox(dir)
    for number in ENDINGS:  # a terminal that is closed leaves no sandbox behind
        signal.signal(number, signal.default_int_handler)
    print_note("Starting a sandbox.")
    print_note("The first time on a machine it is built, which takes about ten minutes.")
    box = Sandbox.up(dir, Options(fleet="mixed", crds=CRDS), Lines(print_note))
    print_note(box.news)
    try:
        _play(box, once)
    finally:
        if not keep:
            for number in ENDINGS:  # a second Ctrl-C would leave half of it running
                signal.signal(number, signal.SIG_IGN)
            print_note("Ending the sandbox.")
            box.down()


def _refuse_running_sandbox(dir: Path) -> None:
    """A sandbox that runs already is in use; the demo would end it at its own end."""
    from hostler.sandbox import Sandbox

    try:
        box = Sandbox.open(dir)
    except Complaint:
        return  # there is none
    if any(box.alive(part) for part in box.part_names):
        raise Complaint(
            f"A sandbox runs already in {dir}.",
            hint=f"Use another --dir, or end that one: hostler sandbox down --dir {dir}",
            code=Exit.REFUSED,
        )


def _look_only() -> None:
    """The user's own cluster: nothing is written, every decision is logged once."""
    print_note(f"KUBECONFIG is set: looking at that cluster ({os.environ['KUBECONFIG']}) in a dry run.")
    print_note("Nothing is written there. `hostler run` without --dry-run would act. Ctrl-C ends it.\n")
    os.execv(sys.executable, [sys.executable, "-m", "hostler", "run", "--dry-run", "--log-format", "console"])  # nosec B606 # our own program, no input


def _play(box: Sandbox, once: bool) -> None:
    address = f"127.0.0.1:{_free_port()}"
    known = {
        "KUBECONFIG": str(box.layout.kubeconfig),
        "HOSTLER_OPERATOR": f"http://{address}",
        "HOSTLER_SANDBOX_DIR": str(box.layout.root),
    }
    hub = {"HOSTLER_HUB_ADDRESS": f"127.0.0.1:{_free_port()}"}
    log = box.layout.root.parent / f"{box.layout.root.name}-operator.log"  # the sandbox takes its own folder away
    stage = Stage({**os.environ, **known, **LEASE, **_vcenter(box), **hub}, address, log)
    _add_metal(box)
    stage.kubectl("create", "namespace", "hostler", again=True)
    stage.hostler("crds", "--apply")
    stage.kubectl("apply", "-f", "-", given=FLEET)
    with stage.operator():
        _story(stage)
        if once:
            return
        _print_next(stage, known)
        stage.wait()


def _print_next(stage: Stage, known: dict[str, str]) -> None:
    program = ".venv/bin/hostler" if _checkout() else "hostler"
    stage.tell(f"The page, every host live in your browser: {stage.page}")
    stage.tell("What to try next, in another terminal:")
    for name, value in known.items():
        print_note(f"export {name}={shlex.quote(value)}")
    rows = [(command.replace("HOSTLER", program), f"# {what.replace('HOSTLER', 'hostler')}") for command, what in NEXT]
    columns = (Column("", needed=True), Column("", least=24, needed=True, below=True, wrap=True))
    for line in fit(columns, rows, terminal_width()):
        print_note(line)
    stage.tell("Ctrl-C ends the operator and the sandbox.")


def _add_metal(box: Sandbox) -> None:
    """Not part of the fleet `mixed`, which is for clusters without Metal3's kinds too."""
    from hostler.sandbox.build import Lines
    from hostler.sandbox.fleet import Fleet, MetalCluster, MetalHost, MetalMachine
    from hostler.sandbox.load import load_fleet

    hosts, machines = MetalHost(name="rack-{i}", count=3), MetalMachine(name="worker-{i}", count=2)
    load_fleet(box, Fleet(metal=[MetalCluster(name="c1", hosts=[hosts], machines=[machines])]), Lines(print_note))


def _vcenter(box: Sandbox) -> dict[str, str]:
    """How the operator is let into the sandbox's vCenter, and times that fit a demonstration."""
    found = box.vcenter
    return {
        "VCENTER_HOST": f"{found['host']}:{found['port']}",
        "VCENTER_USER": found["user"],
        "VCENTER_PASSWORD": found["password"],
        "VCENTER_CA_BUNDLE": found["ca_bundle"],
        "DRAIN_TIMEOUT_SECONDS": "45",
    }


def _story(stage: Stage) -> None:
    stage.until_leading()
    stage.tell(f"The operator leads. The page, to watch all this in your browser: {stage.page}")
    stage.tell("This is the fleet it looks after:")
    stage.kubectl("get", "nodes", "-o", "custom-columns=NODE:.metadata.name,PROVIDER:.spec.providerID")
    stage.hostler("status")
    stage.tell("A colleague holds a node. It is cordoned, and the node says by whom and why.")
    stage.hostler("hold", "gpu-0", "--why", "fan 3 is being replaced")
    stage.tell("Another one uncordons it by hand. The operator insists, once, and says so in an Event.")
    stage.kubectl("uncordon", "gpu-0")
    stage.until("gpu-0 is cordoned again", lambda: _unschedulable(stage, "gpu-0"))
    stage.hostler("explain", "node/gpu-0")
    stage.tell("The stop button: while a Pause exists nothing is written, whatever happens.")
    stage.hostler("pause", "--why", "showing the stop button", "--wait", "30")
    stage.hostler("resume")
    stage.tell("The last holder leaves: the node is back in service, as it was before.")
    stage.hostler("release", "gpu-0")
    stage.tell("What would happen if gpu-1 were drained now? The same decision that a drain takes, only printed.")
    stage.hostler("plan", "node/gpu-1")
    stage.tell("And the drain itself: held, emptied, with what is left named as it goes.")
    stage.hostler("drain", "app-1", "--timeout", "60", may_fail=True)
    stage.hostler("release", "app-1", may_fail=True)
    _metal(stage)
    _maintenance(stage)


def _metal(stage: Stage) -> None:
    stage.tell("Cluster API wants two bare metal machines, and there are three hosts: each gets one, and says why.")
    stage.until("both machines have a host", lambda: _consumers(stage) == ["worker-0", "worker-1"])
    stage.hostler("metal", "hosts", "-A")
    stage.hostler("explain", "metal3machine/metal/worker-0")


def _consumers(stage: Stage) -> list[str]:
    names = "jsonpath={.items[*].spec.consumerRef.name}"
    return sorted(stage.ask("get", "baremetalhosts", "-n", "metal", "-o", names).split())


def _maintenance(stage: Stage) -> None:
    stage.tell("A vSphere administrator wants esx3. What would happen? Each other host with its reason.")
    stage.hostler("maintenance", "plan", "esx3")
    stage.tell("Enter Maintenance Mode: the task hangs on the GPU of gpu-2, until Hostler has emptied and stopped it.")
    stage.hostler("sandbox", "maintenance", "enter", "esx3")
    stage.until("gpu-2 is cordoned", lambda: _unschedulable(stage, "gpu-2"))
    stage.hostler("maintenance", "status")
    stage.tell(
        "Its VM is shut down, moved to a host with a free GPU, started there; its node is Ready from a new boot."
    )
    stage.until("gpu-2 is back in service", lambda: not _unschedulable(stage, "gpu-2"), 300)
    stage.kubectl("events", "--for", "node/gpu-2")
    stage.tell("The task still waits for cp-2, which is not ours to stop; the administrator cancels it.")
    stage.hostler("sandbox", "maintenance", "cancel", "esx3", may_fail=True)


def _unschedulable(stage: Stage, node: str) -> bool:
    return stage.ask("get", "node", node, "-o", "jsonpath={.spec.unschedulable}") == "true"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _checkout() -> bool:
    return Path("pyproject.toml").exists() and Path(".venv/bin/hostler").exists()


class Stage:
    """Where the story plays: commands that are printed before they run, and the operator in the background."""

    def __init__(self, env: dict[str, str], address: str, log: Path) -> None:
        self._env = env
        self._address = address
        self._log = log
        self._operator: subprocess.Popen[bytes] | None = None

    @property
    def page(self) -> str:
        return f"http://{self._address}/"

    def tell(self, sentence: str) -> None:
        print_note("")
        width = terminal_width() or 120
        for line in textwrap.wrap(sentence, max(20, width - 2), break_long_words=False, break_on_hyphens=False):
            print_note(f"# {line}")

    def hostler(self, *words: str, may_fail: bool = False) -> None:
        self._run("hostler", [sys.executable, "-m", "hostler", *words], may_fail=may_fail)

    def kubectl(self, *words: str, given: str | None = None, again: bool = False) -> None:
        """`again`: it is fine if it was done before (a sandbox that is used a second time)."""
        self._run("kubectl", self._kubectl(*words), given=given, may_fail=again)

    def ask(self, *words: str) -> str:
        """A quiet kubectl, for the story's own eyes."""
        return subprocess.run(
            self._kubectl(*words), env=self._env, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    @contextmanager
    def operator(self) -> Iterator[None]:
        """The operator for as long as the block lasts; its log goes into a file, for the story is told here."""
        from hostler.capabilities import OPTIONAL_NAMES

        words = ["run", "--only", ",".join(OPTIONAL_NAMES), "--log-format", "console", "--http-address", self._address]
        command = [sys.executable, "-m", "hostler", *words]
        print_note(f"\n$ hostler {' '.join(words)} &")
        print_note(f"Its log is in {self._log}")
        with self._log.open("w") as log:
            # In a session of its own: Ctrl-C is for us, and we end the operator in good order.
            self._operator = subprocess.Popen(
                command, env=self._env, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            yield
        finally:
            self._operator.send_signal(signal.SIGTERM)
            self._operator.wait(timeout=40)

    def until_leading(self) -> None:
        lease = (
            "get",
            "lease",
            "-n",
            "hostler",
            "hostler",
            "--ignore-not-found",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        )
        self.until("the operator leads", lambda: bool(self.ask(*lease)))
        # The lease is new: its holder begins to act after one duration, see docs/architecture.md.
        time.sleep(float(LEASE["HOSTLER_LEASE_DURATION_SECONDS"]) + 0.5)

    def until(self, what: str, look: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not look():
            if self._operator is not None and self._operator.poll() is not None:
                raise self._ended(self._operator.returncode)
            if time.monotonic() > end:
                raise Complaint(
                    f"Not within {seconds:.0f} s: {what}.", hint=f"The operator's log may say why: {self._log}"
                )
            time.sleep(0.2)

    def wait(self) -> None:
        assert self._operator is not None
        try:
            code = self._operator.wait()
        except KeyboardInterrupt:
            return
        raise self._ended(code)

    def _ended(self, code: int) -> Complaint:
        last = "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
        print_note(last)
        return Complaint(f"The operator ended with code {code}; its last lines are above.", hint=f"See {self._log}")

    def _run(self, name: str, command: list[str], *, given: str | None = None, may_fail: bool = False) -> None:
        words = command[3:] if name == "hostler" else command[2:]
        print_note("$ " + " ".join([name, *(f"'{word}'" if " " in word else word for word in words)]))
        done = subprocess.run(command, env=self._env, input=given, text=True, check=False)
        if done.returncode and not may_fail:
            raise Complaint(f"`{name} {words[0]}` ended with code {done.returncode}.", code=Exit.FAILED)

    def _kubectl(self, *words: str) -> list[str]:
        from hostler.sandbox.build import Silent, ensure

        return [str(ensure("controlplane", Silent())), "kubectl", *words]

"""The operator is killed after every single write, to Kubernetes or to vCenter, and each time another one goes on.

Each write is a crash point once (`doors.py`). The story is the same function as with an operator that lives, and ends
the same: nothing lost, nothing done twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hostler.sandbox import Sandbox
from tests.real.accounts import charted, kubeconfig_of, new_account, rights_here
from tests.real.doors import Doors
from tests.real.maintaining import Site, site
from tests.real.maintenance_stories import PLANS, SCRIPTS
from tests.real.nursery import Nursery, nursery
from tests.real.operating import environment
from tests.real.story import telling
from tests.real.together import Told, own_namespace, selected, side_by_side

AT_ONCE = 3

# Three stories of different shape in every run; the others in the full one.
ALWAYS = ("free-host", "wait-and-return", "cancel-after-power-off")
# Nothing that a chain of kills passes through may run out, but where the story waits for exactly that.
PATIENT = {
    "DRAIN_TIMEOUT_SECONDS": "600",
    "GUEST_SHUTDOWN_TIMEOUT_SECONDS": "60",
    "RELOCATE_TIMEOUT_SECONDS": "300",
    "POWER_ON_TIMEOUT_SECONDS": "300",
}
UNTOUCHED = ("left-to-drs",)  # its worker is left alone, so that there is no write to be killed after
IMPATIENT = {
    "stubborn-guest": {"GUEST_SHUTDOWN_TIMEOUT_SECONDS": "8"},
    "no-tools": {"GUEST_SHUTDOWN_TIMEOUT_SECONDS": "8"},  # a restart does not know whether the guest was asked
    "budget-for-ever": {"DRAIN_TIMEOUT_SECONDS": "90"},  # several lives pass before the budget is named
    "relocate-takes-too-long": {"RELOCATE_TIMEOUT_SECONDS": "6"},
}


class Chain(threading.Thread):
    """Starts an operator, kills it where the doors shut, starts the next one, until told to stop."""

    def __init__(self, doors: Doors, nursery: Nursery, kubeconfig: Path, namespace: str, told: dict[str, str]) -> None:
        super().__init__(name="chain")
        self._doors, self._nursery, self._folder = doors, nursery, kubeconfig.parent
        words = ("run", "--log-format", "json", "--log-level", "debug", "--operator-namespace", namespace)
        self._words = (*words, "--http-address", "127.0.0.1:0")
        self._env = environment(kubeconfig) | told | {"HOSTLER_LEADER_ELECTION": "false"}
        self._over = threading.Event()
        self.started = 0
        self.failure = ""
        self.start()

    def run(self) -> None:
        while not self._over.is_set() and not self.failure:
            self._live()

    def _live(self) -> None:
        """One operator, from its start to its death."""
        self.started += 1
        log = self._folder / f"operator-{self.started}.log"
        operator = self._nursery.bear(self._words, self._env, self._folder, log)
        by_itself = False
        try:
            while not self._over.is_set() and not by_itself and not self._doors.shut.wait(0.05):
                by_itself = operator.ended()
        finally:
            code = operator.end()
            self._doors.admit_the_next()
        if by_itself:
            self.failure = f"the operator ended with {code}:\n{log.read_text()[-3000:]}"

    def stop(self) -> None:
        self._over.set()
        self.join(30)
        assert not self.failure, self.failure


@contextmanager
def killed_all_the_time(
    made: Site, nursery: Nursery, namespace: str, folder: Path, told: dict[str, str]
) -> Iterator[tuple[Doors, Chain]]:
    box = made.sandbox
    with (
        Doors(box, made.simulator.port, folder).open() as doors,
        charted(box, new_account(namespace), rights_here(box, ["maintenance"])) as user,
    ):
        doors.killing = True
        through = {"VCENTER_HOST": f"127.0.0.1:{doors.vcenter_port}", "VCENTER_CA_BUNDLE": str(doors.cert)}
        kubeconfig = by_the_doors(doors, kubeconfig_of(box, folder, user), folder / "kubeconfig")
        chain = Chain(doors, nursery, kubeconfig, namespace, made.environment(**told) | through)
        try:
            yield doors, chain
        finally:
            chain.stop()


def by_the_doors(doors: Doors, kubeconfig: Path, path: Path) -> Path:
    """The same by the door: with its token, or as the administrator if it has none."""
    read = yaml.safe_load(kubeconfig.read_text())
    for one in read["clusters"]:
        one["cluster"] = {"server": f"http://127.0.0.1:{doors.api_port}"}
    for one in read["users"]:
        one["user"] = {key: value for key, value in one["user"].items() if key == "token"}
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folders = tmp_path_factory.mktemp("killed")
    with nursery() as born:

        def tell(name: str) -> None:
            (folders / name).mkdir()
            killed(name, sandbox, born, folders / name)

        with side_by_side(selected(request), tell, AT_ONCE) as futures:
            yield futures


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in SCRIPTS]
)
@pytest.mark.timeout(3600)  # in a full run all of them, side by side
def test_killed_after_every_write(name: str, told: Told) -> None:
    told[name].result()


def killed(name: str, sandbox: Sandbox, born: Nursery, folder: Path) -> None:
    told = PATIENT | IMPATIENT.get(name, {})
    with site(sandbox, folder, {name: PLANS[name]}) as made, own_namespace(made.kube) as namespace:
        made.patience = 5.0
        with (
            killed_all_the_time(made, born, namespace, folder, told) as (doors, chain),
            telling(made, name, namespace) as story,
        ):
            SCRIPTS[name](story)
    if name not in UNTOUCHED:
        assert len(doors.stopped_at) >= 3, f"hardly anything was written: {doors.stopped_at}"
    assert chain.started >= len(doors.stopped_at)
    twice = [what for what, number in Counter(doors.writes).items() if number > 1 and must_not_repeat(what, name)]
    assert not twice, f"done twice: {twice}\ncrash points: {doors.stopped_at}"


def must_not_repeat(what: str, story: str) -> bool:
    """An eviction, a power-off, a move: once. Words, and the question to a guest, may be repeated."""
    if story == "relocate-takes-too-long" and what.startswith("RelocateVM"):
        return False  # the first was cancelled
    return "eviction" in what or what.startswith(("PowerOffVM", "RelocateVM"))

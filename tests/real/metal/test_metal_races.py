"""One host never has two machines and one machine never two hosts: killed after each write, two operators at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.accounts import kubeconfig_of
from tests.real.conftest import Eventually
from tests.real.metal_remedies import OUT_OF_SERVICE, POWER_OFF, UNHEALTHY, falls_ill, held_off, over_time
from tests.real.metal_world import Api, Json, World, available, consumer, driver, history, home, one_to_one
from tests.real.operating import environment, operator

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def login(sandbox: Sandbox, account: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with the documented rights and no other."""
    return kubeconfig_of(sandbox, tmp_path_factory.mktemp("metal"), account)


@pytest.fixture
def world(sandbox: Sandbox, definitions: None, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


def lives(login: Path, deaths: list[int]) -> int:
    """The room as a process that dies after so many writes, again and again, until it rests; how many lives it took."""
    words = [sys.executable, "-m", "tests.real.metal_driver", str(login), ",".join(map(str, deaths))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return lives_in(done.stdout)


def lives_in(told: str) -> int:
    return sum(line.startswith("life ") for line in told.splitlines())


def story(world: World, login: Path, deaths: list[int], spec: Json | None = None) -> int:
    """Three machines and two hosts; then one machine goes. Every death is a crash point."""
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    world.make_hosts("h1", "h2", ready=True)
    world.make_machines("m1", "m2", "m3", spec=spec)
    took = lives(login, deaths)
    pairs = one_to_one(world)
    assert len(pairs) == 2, "every host is used"
    for name, host in pairs.items():
        assert world.host_of(name) == host, "and each machine names its own"
        assert world.condition(name)["status"] == "True"
        label = world.api.get(world.core("secrets", f"{host}-bmc"))["metadata"]["labels"]
        assert label["cluster.x-k8s.io/cluster-name"] == "c1", "no crash leaves a secret without its label"
    (waiting,) = {"m1", "m2", "m3"} - pairs.keys()
    assert world.condition(waiting)["status"] == "False"
    gone = sorted(pairs)[0]
    world.api.delete(world.metal("metal3machines", gone))
    took += lives(login, deaths)
    assert not world.machine(gone)
    assert world.host_of(waiting) == pairs[gone], "the third has its host now"
    judge(history(world.api, world.hosts_path(), since))
    return took


def judge(past: list[Json]) -> dict[str, str]:
    """What held at every moment, by the API server's own history; who had which host in the end."""
    owners: dict[str, str] = {}
    for host in past:
        name, now = host["metadata"]["name"], consumer(host)
        assert owners.get(name, now) in ("", now) or not now, f"{name} went from {owners[name]} to {now}"
        assert now or "image" not in host["spec"], f"{name} has an image and nobody"
        owners[name] = now
        held = [one for one in owners.values() if one]
        assert len(held) == len(set(held)), f"{now} has two hosts"
    return owners


def test_killed_after_each_write(world: World, login: Path) -> None:
    took = story(world, login, [1] * 60)
    assert took > 15, "there was a death after each write"
    assert took < 60, "and no write was ever made again and again"


@pytest.mark.full
def test_killed_after_each_write_of_machines_with_data(world: World, login: Path) -> None:
    """An index and its secret are of one machine only, and nothing is left of them when it goes."""
    world.make_data_template("dt", {"metaData": {"indexes": [{"key": "index"}]}})
    took = story(world, login, [1] * 150, {"dataTemplate": {"name": "dt"}})
    assert 40 < took < 150, "there was a death after each write, and no write was ever made again and again"
    datas = world.api.items(world.metal("metal3datas"))
    # The third gets the host before the data of the one that went is gone, or after it: then it gets that index.
    indexes = {one["spec"]["index"] for one in datas}
    assert (len(datas), len(indexes), indexes <= {0, 1, 2}) == (2, 2, True), indexes
    for one in datas:
        name = one["spec"]["claim"]["name"]
        assert f"index: '{one['spec']['index']}'" in world.secret_text(f"{name}-metadata", "metaData")
        assert world.host(world.host_of(name))["spec"]["metaData"]["name"] == f"{name}-metadata"
    assert len(world.api.items(world.metal("metal3dataclaims"))) == 2
    listed = world.api.get(world.metal("metal3datatemplates", "dt"))["status"]["indexes"]
    assert {one["index"] for one in listed} == indexes


@contextmanager
def staying(login: Path, deaths: list[int], folder: Path) -> Iterator[Callable[[], int]]:
    """The same, but it stays until nobody needs it any more; in which life it is."""
    words = [sys.executable, "-m", "tests.real.metal_driver", str(login), ",".join(map(str, deaths)), "stay"]
    log = folder / f"lives-{os.urandom(4).hex()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield lambda: lives_in(log.read_text())
        assert process.poll() is None, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # the life it is in ends with it
        process.wait(timeout=60)


@pytest.mark.parametrize("deaths", [[5, 1, 1, 1], pytest.param([1] * 14, marks=pytest.mark.full)])
def test_killed_in_the_middle_of_a_remediation(
    world: World, sandbox: Sandbox, login: Path, make_node: Callable[..., str], eventually: Eventually, tmp_path: Path,
    deaths: list[int],
) -> None:  # fmt: skip
    """The writes: its phase, the finalizer, off, the taint; then its phase, on, the taint off, the finalizer off."""
    with driver(sandbox, tmp_path):
        world.make_kubeconfig()
        world.make_hosts("h1")
        available(world, eventually, "h1")
        node = make_node(labels={"metal3.io/uuid": world.host("h1")["metadata"]["uid"]})
        world.make_machines("m1")
        with staying(login, [0], tmp_path):
            eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 90, "ready")
            eventually(lambda: world.host("h1")["status"]["poweredOn"], 60, "on")
        world.is_node("m1", node)
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        world.make_remediation("m1")
        with staying(login, deaths, tmp_path) as life:
            eventually(lambda: world.phase("m1") == "Waiting", 180, "rebooted")
            eventually(lambda: not world.remediation("m1")["metadata"].get("finalizers"), 120, "in service again")
            # The last write is seen before the one who made it is dead and the next one lives.
            eventually(lambda: life() > min(len(deaths), 8), 60, "a death after each write")
            assert life() < 14, "and no write again and again"
        assert "retryCount" not in world.remediation("m1")["status"], "no attempt was lost"
        assert world.host("h1")["status"]["poweredOn"]
        rebooted_once(world, node, since)
        # The time of the last attempt is over and its node is ill: the host is marked, the owner told, and that is all.
        falls_ill(world.api, eventually, node)
        over_time(world, "m1", retryCount=1)
        with staying(login, [1] * 3, tmp_path) as life:
            eventually(lambda: world.phase("m1") == "Deleting machine", 120, "given up")
            # Its mark; the owner's condition, which is applied again after each crash; and its phase.
            eventually(lambda: life() > 3, 60, "a death after each write")
            assert life() == 4
        assert UNHEALTHY in world.host("h1")["metadata"]["annotations"]
        told = world.api.get(world.capi("machines", "m1"))["status"]["conditions"]
        assert [one["status"] for one in told if one["type"] == "OwnerRemediated"] == ["False"]
        assert not held_off(world, "h1")


def rebooted_once(world: World, node: str, since: str) -> None:
    """By the API server's own history: off and on once; its node out of service once, and only while it was off."""
    seen = [("host", one) for one in history(world.api, world.hosts_path(), since)]
    seen += [("node", one) for one in history(world.api, "/api/v1/nodes", since) if one["metadata"]["name"] == node]
    on, kept_off, out = [True], [False], [False]
    for kind, one in sorted(seen, key=lambda pair: int(pair[1]["metadata"]["resourceVersion"])):
        if kind == "host":
            on.append(one["status"]["poweredOn"])
            kept_off.append(any(name.startswith(POWER_OFF) for name in one["metadata"].get("annotations", {})))
        else:
            out.append(any(taint["key"] == OUT_OF_SERVICE for taint in one["spec"].get("taints") or []))
            assert not (out[-1] and not out[-2] and on[-1]), "out of service while its host was on"
    for states in (on, kept_off, out):
        assert sum(before != now for before, now in pairwise(states)) == 2, (on, kept_off, out)


@pytest.mark.full
@pytest.mark.parametrize("point", range(1, 15))
def test_killed_once_after_write(world: World, login: Path, point: int) -> None:
    story(world, login, [point])


# The writes of a claim as the code before the borders of docs/threat-model.md made them (recorded with commit f4b1989).
OLD_MACHINE = {"metadata": {"finalizers": ["metal3machine.infrastructure.cluster.x-k8s.io"]}}
OLD_HOST: Json = {
    "metadata": {
        "annotations": {"clusterctl.cluster.x-k8s.io/block-move": ""},
        "labels": {"cluster.x-k8s.io/cluster-name": "c1", "clusterctl.cluster.x-k8s.io/move-hierarchy": ""},
    },
    "spec": {
        "image": {
            "checksum": "http://images.invalid/sum", "checksumType": "sha256", "url": "http://images.invalid/os.qcow2",
        },
        "online": True,
    },
}  # fmt: skip


def old_claim(world: World, machine: str, host: str, writes: int) -> None:
    """The older operator was ended after so many writes: the machine names its host, the host its consumer."""
    named = {"annotations": {"metal3.io/BareMetalHost": f"{world.namespace}/{host}"}}
    world.api.patch(world.metal("metal3machines", machine), {"metadata": {**OLD_MACHINE["metadata"], **named}})
    if writes > 1:
        mine = {"name": machine, "namespace": world.namespace}
        reference = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", **mine}
        data = {"name": f"{machine}-bootstrap", "namespace": world.namespace}
        spec = {**OLD_HOST["spec"], "consumerRef": reference, "userData": data}
        world.api.patch(world.hosts_path(host), {**OLD_HOST, "spec": spec})


def test_claims_begun_by_the_older_operator_go_on(
    world: World, sandbox: Sandbox, account: str, eventually: Eventually, tmp_path: Path
) -> None:
    """No machine has a status yet; a third one waits, and would take what a forgotten claim leaves."""
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    world.make_hosts("h1", "h2", ready=True)
    world.make_machines("m1", "m2", "m3")
    old_claim(world, "m1", "h1", writes=2)
    old_claim(world, "m2", "h2", writes=1)
    for life in ("first", "second"):
        with operator(sandbox, tmp_path, home(account), "--only", "metal", user=account, name=life) as running:
            running.ready()
            eventually(lambda: all(world.condition(one).get("status") for one in ("m1", "m2", "m3")), 60, "all told")
            eventually(lambda: world.condition("m2")["status"] == "True", 60, "the second claim is made")
        assert one_to_one(world) == {"m1": "h1", "m2": "h2"}
        assert {one: world.condition(one)["status"] for one in ("m1", "m2", "m3")} == {
            "m1": "True", "m2": "True", "m3": "False",
        }  # fmt: skip
    for host in ("h1", "h2"):
        label = world.api.get(world.core("secrets", f"{host}-bmc"))["metadata"]["labels"]
        assert label["cluster.x-k8s.io/cluster-name"] == "c1"
    assert judge(history(world.api, world.hosts_path(), since)) == {"h1": "m1", "h2": "m2"}


# States in which nothing of the machine is on the host, and states in which it has to be waited for.
EMPTY = ("", "unmanaged", "registering", "match profile", "inspecting", "ready", "available", "externally provisioned")
BUSY = ("preparing", "provisioning", "provisioned", "deprovisioning", "powering off before delete", "deleting")


# Every operator, in several cases: each finds one host of these, by its number, by a label that it alone has or lacks.
OPERATORS = (
    *("lt", "In", "notIn", "Exists", "!", "DoesNotExist", "=", "==", "!=", "IN", "NOTIN", "exists"),
    *("in", "doesnotexist", "Gt"),
)


def labels_of(number: int) -> dict[str, str]:
    others = {f"not-{other}": "so" for other in range(len(OPERATORS)) if other != number}
    return {"number": str(number), f"only-{number}": "", **others}


def finds(number: int) -> dict[str, list[dict[str, object]]]:
    operator, others = OPERATORS[number], [str(other) for other in range(len(OPERATORS)) if other != number]

    def is_so(key: str, *values: str) -> dict[str, object]:
        return {"key": key, "operator": operator, "values": list(values)}

    match operator.lower():
        case "lt" | "gt":
            found = is_so("number", "1" if operator == "lt" else others[-1])
        case "notin":
            found = is_so("number", *others)
        case "!=":
            found = is_so(f"not-{number}", "so")
        case "exists":
            found = is_so(f"only-{number}")
        case "!" | "doesnotexist":
            found = is_so(f"not-{number}")
        case _:
            found = is_so("number", str(number))
    return {"matchExpressions": [found]}


def test_every_operator_of_a_selector_deletion_from_every_state_of_the_host_and_a_secret_that_is_missing(
    world: World, sandbox: Sandbox, login: Path
) -> None:
    """Nobody drives these hosts, so each stays in the state that it is put into."""
    names = [f"h{number}" for number in range(len(OPERATORS))]
    world.make_hosts(*names, ready=True)
    world.make_machines(*(f"m{number}" for number in range(len(names))))
    for number, name in enumerate(names):
        world.api.patch(world.hosts_path(name), {"metadata": {"labels": labels_of(number)}})
        world.api.patch(world.metal("metal3machines", f"m{number}"), {"spec": {"hostSelector": finds(number)}})
    world.api.delete(world.core("secrets", "h0-bmc"))
    lives(login, [0])
    pairs = {host: machine for machine, host in one_to_one(world).items()}
    assert pairs == {f"h{number}": f"m{number}" for number in range(len(OPERATORS))}
    missing = world.condition(pairs["h0"])
    assert missing["reason"] == "BMCSecretMissing"
    assert "h0-bmc of host h0 does not exist" in missing["message"]
    create(sandbox, [world._secret("h0-bmc", {"username": "u", "password": "p"})])
    states = dict(zip(names[1:], (*EMPTY, *BUSY), strict=True))
    for name, state in states.items():
        world.set_state(name, state)
        world.api.delete(world.metal("metal3machines", pairs[name]))
    lives(login, [0])
    assert world.condition(pairs["h0"])["status"] == "True", "the secret is back"
    for name, state in states.items():
        spec = world.host(name)["spec"]
        assert "image" not in spec, f"{state}: its image is taken off at once"
        assert spec["online"] is False
        assert bool(world.machine(pairs[name])) == ("consumerRef" in spec) == (state in BUSY), state
        if state in BUSY:
            assert "being emptied" in world.condition(pairs[name], "Ready")["message"]
            world.set_state(name, "available")
    lives(login, [0])
    assert set(one_to_one(world).values()) == {"h0"}
    assert not [name for name in states if world.machine(pairs[name])]


# -- two operators


class Storm(threading.Thread):
    """Somebody else writes the same objects all the time, so that every optimistic lock is put to the test."""

    def __init__(self, box: Sandbox, world: World) -> None:
        super().__init__(daemon=True)
        self._api, self._world, self.stop = Api(box), world, threading.Event()

    def run(self) -> None:
        dice, number = random.Random(1), 0
        while not self.stop.is_set():
            number += 1
            host, machine = f"h{dice.randrange(100)}", f"m{dice.randrange(200)}"
            change = {"metadata": {"annotations": {"storm": str(number)}}}
            self._api.call("PATCH", self._world.hosts_path(host), change)
            self._api.call("PATCH", self._world.metal("metal3machines", machine), change)
            time.sleep(0.01)
        self._api.close()


def news(world: World, past: list[Json]) -> list[Json]:
    """What has happened to the hosts since then; asked for in time, for the API server forgets what is long ago."""
    latest = max(int(host["metadata"]["resourceVersion"]) for host in past)
    return history(world.api, world.hosts_path(), str(latest))


def test_two_operators_two_hundred_machines_and_kills(
    world: World, sandbox: Sandbox, login: Path, account: str, tmp_path: Path
) -> None:
    foreign = {"h7": "somebody", "h42": "somebody-else"}
    world.make_hosts(*(f"h{number}" for number in range(100)), ready=True)
    for name, who in foreign.items():
        reference = {"apiVersion": "example.org/v1", "kind": "Server", "name": who, "namespace": world.namespace}
        world.api.patch(world.hosts_path(name), {"spec": {"consumerRef": reference}})
    past = world.hosts()
    words = (
        "run", "--only", "metal", "--no-leader-election", "--log-format", "json", "--http-address", "127.0.0.1:0",
        "--operator-namespace", home(account), "--metal-writes-per-second", "60",
        # not all at once: some are to be killed
    )  # fmt: skip

    def start(name: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "hostler", *words], stdout=out, stderr=out, env=environment(login), cwd=tmp_path
            )

    running = {name: start(name) for name in ("a", "b")}
    storm = Storm(sandbox, world)
    storm.start()
    try:
        world.make_machines(*(f"m{number}" for number in range(200)))
        dice, end = random.Random(os.urandom(4)), time.monotonic() + 300
        kill_at, kills = 5, 0
        while (used := len(one_to_one(world)) - len(foreign)) < 98:
            past += news(world, past)
            assert time.monotonic() < end, f"only {used} of 98 hosts are used"
            if used >= kill_at:  # by progress and not by time: on a busy machine nobody would get to work
                name = dice.choice(("a", "b"))
                running[name].send_signal(signal.SIGKILL)
                running[name].wait()
                running[name] = start(name)
                kill_at, kills = used + dice.randint(5, 20), kills + 1
            time.sleep(0.1)
        assert kills >= 2
    finally:
        storm.stop.set()
        storm.join()
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(timeout=40)
    owners = judge(past + news(world, past))
    assert {name: consumer(world.host(name)) for name in foreign} == foreign
    assert len(owners) == 100
    assert all(owners[name] == who for name, who in foreign.items())
    assert not [name for name in ("a", "b") if "bug in reconcile" in (tmp_path / f"{name}.log").read_text()]

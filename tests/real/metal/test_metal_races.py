"""One host never has two machines and one machine never two hosts: killed after each write, two operators at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.conftest import Eventually
from tests.real.metal_world import Api, World, consumer, history, one_to_one
from tests.real.operating import environment, kubeconfig_as

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def world(sandbox: Sandbox, definitions: None, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


def lives(box: Sandbox, deaths: list[int]) -> int:
    """The room as a process that dies after so many writes, again and again, until it rests; how many lives it took."""
    words = [sys.executable, "-m", "tests.real.metal_driver", str(box.kubeconfig), ",".join(map(str, deaths))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[-1])


def story(world: World, box: Sandbox, deaths: list[int]) -> int:
    """Three machines and two hosts; then one machine goes. Every death is a crash point."""
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    world.make_hosts("h1", "h2", ready=True)
    world.make_machines("m1", "m2", "m3")
    took = lives(box, deaths)
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
    took += lives(box, deaths)
    assert not world.machine(gone)
    assert world.host_of(waiting) == pairs[gone], "the third has its host now"
    judge(world, since)
    return took


def judge(world: World, since: str) -> dict[str, str]:
    """What held at every moment, by the API server's own history; who had which host in the end."""
    owners: dict[str, str] = {}
    for host in history(world.api, world.hosts_path(), since):
        name, now = host["metadata"]["name"], consumer(host)
        assert owners.get(name, now) in ("", now) or not now, f"{name} went from {owners[name]} to {now}"
        assert now or "image" not in host["spec"], f"{name} has an image and nobody"
        owners[name] = now
        held = [one for one in owners.values() if one]
        assert len(held) == len(set(held)), f"{now} has two hosts"
    return owners


def test_killed_after_each_write(world: World, sandbox: Sandbox) -> None:
    took = story(world, sandbox, [1] * 60)
    assert took > 15, "there was a death after each write"
    assert took < 60, "and no write was ever made again and again"


@pytest.mark.full
@pytest.mark.parametrize("point", range(1, 15))
def test_killed_once_after_write(world: World, sandbox: Sandbox, point: int) -> None:
    story(world, sandbox, [point])


# States in which nothing of the machine is on the host, and states in which it has to be waited for.
EMPTY = ("", "unmanaged", "registering", "inspecting", "ready", "available")
BUSY = ("preparing", "provisioning", "provisioned", "deprovisioning", "powering off before delete", "deleting")


def test_deletion_from_every_state_of_the_host_and_a_secret_that_is_missing(world: World, sandbox: Sandbox) -> None:
    """Nobody drives these hosts, so each stays in the state that it is put into."""
    names = [f"h{number}" for number in range(len(EMPTY) + len(BUSY) + 1)]
    world.make_hosts(*names, ready=True)
    world.api.delete(world.core("secrets", "h0-bmc"))
    world.make_machines(*(f"m{number}" for number in range(len(names))))
    lives(sandbox, [0])
    pairs = {host: machine for machine, host in one_to_one(world).items()}
    assert len(pairs) == len(names)
    missing = world.condition(pairs["h0"])
    assert missing["reason"] == "BMCSecretMissing"
    assert "h0-bmc of host h0 does not exist" in missing["message"]
    create(sandbox, [world._secret("h0-bmc", {"username": "u", "password": "p"})])
    states = dict(zip(names[1:], (*EMPTY, *BUSY), strict=True))
    for name, state in states.items():
        world.set_state(name, state)
        world.api.delete(world.metal("metal3machines", pairs[name]))
    lives(sandbox, [0])
    assert world.condition(pairs["h0"])["status"] == "True", "the secret is back"
    for name, state in states.items():
        spec = world.host(name)["spec"]
        assert "image" not in spec, f"{state}: its image is taken off at once"
        assert spec["online"] is False
        assert bool(world.machine(pairs[name])) == ("consumerRef" in spec) == (state in BUSY), state
        if state in BUSY:
            assert "being emptied" in world.condition(pairs[name], "Ready")["message"]
            world.set_state(name, "available")
    lives(sandbox, [0])
    assert set(one_to_one(world).values()) == {"h0"}
    assert not [name for name in states if world.machine(pairs[name])]


# -- two operators


class Storm(threading.Thread):
    """Somebody else writes the same objects all the time, so that every optimistic lock is put to the test."""

    def __init__(self, box: Sandbox, world: World) -> None:
        super().__init__(daemon=True)
        self._api, self._world, self.stop = Api(box), world, threading.Event()
        self.conflicts = 0

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


def test_two_operators_two_hundred_machines_and_kills(
    world: World, sandbox: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    foreign = {"h7": "somebody", "h42": "somebody-else"}
    world.make_hosts(*(f"h{number}" for number in range(100)), ready=True)
    for name, who in foreign.items():
        reference = {"apiVersion": "example.org/v1", "kind": "Server", "name": who, "namespace": world.namespace}
        world.api.patch(world.hosts_path(name), {"spec": {"consumerRef": reference}})
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    path = kubeconfig_as(sandbox, tmp_path, f"metal-{world.namespace}", "system:masters")
    words = (
        "run", "--only", "metal", "--no-leader-election", "--log-format", "json", "--http-address", "127.0.0.1:0",
        "--namespace", world.namespace, "--metal-writes-per-second", "60",  # not all at once: some are to be killed
    )  # fmt: skip

    def start(name: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "hostler", *words], stdout=out, stderr=out, env=environment(path), cwd=tmp_path
            )

    running = {name: start(name) for name in ("a", "b")}
    storm = Storm(sandbox, world)
    storm.start()
    try:
        world.make_machines(*(f"m{number}" for number in range(200)))
        dice, end = random.Random(os.urandom(4)), time.monotonic() + 300
        kill_at, kills = 5, 0
        while (used := len(one_to_one(world)) - len(foreign)) < 98:
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
    owners = judge(world, since)
    assert {name: consumer(world.host(name)) for name in foreign} == foreign
    assert all(owners.get(name, who) == who for name, who in foreign.items())
    assert not [name for name in ("a", "b") if "bug in reconcile" in (tmp_path / f"{name}.log").read_text()]

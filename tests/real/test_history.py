"""What the history promises: nothing twice, the last entry is the state, little is lost, and that is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hostler.history.model import Entry, What
from hostler.sandbox import Sandbox
from tests.real import metal_world
from tests.real.auditing import Tail
from tests.real.conftest import Eventually
from tests.real.maintaining import POLICY, Plan, Site, site, until
from tests.real.operating import Running, hostler, operator
from tests.real.postgres_server import PASSWORD, PostgresServer, postgres_server
from tests.real.recording import (
    Killed,
    audited_actions,
    exported,
    folders,
    is_readable,
    judge,
    last_states,
    log_lines,
    read,
    states_now,
)
from tests.real.story import Story, telling

MakeNode = Callable[..., str]


@pytest.fixture(scope="module")
def crd(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


def maintain(story: Story, hosts: dict[str, str], seconds: float) -> None:
    """Every host enters maintenance and comes back; its worker waits for it."""
    for host in hosts:
        story.enter(host)
    for vm in hosts.values():
        until(lambda vm=vm: story.state(vm) == "powered-off", f"{vm} is off", seconds)  # type: ignore[misc]
    for host in hosts:
        story.exit(host)
    for vm in hosts.values():
        until(lambda vm=vm: story.state(vm) == "" and story.ready(vm), f"{vm} is back", seconds)  # type: ignore[misc]


def is_complete(sandbox: Sandbox, running: Running) -> bool:
    """What another test's vCenter had stays as it was."""
    last, now = last_states(exported(sandbox, running)), states_now(running)
    nodes = {key for key in last if key.startswith("node:")}
    return nodes <= now.keys() and all(last.get(key) == state for key, state in now.items())


def world_of(hosts: int) -> tuple[Plan, dict[str, str]]:
    """ESXi hosts with one worker each, and none to spare."""
    pairs = {f"esx{number}": f"w{number}" for number in range(hosts)}
    return Plan(dict.fromkeys(pairs, 1), {vm: host for host, vm in pairs.items()}), pairs


def ready_story(stack: ExitStack, sandbox: Sandbox, folder: Path, space: str, plan: Plan) -> tuple[Site, Story]:
    made = stack.enter_context(site(sandbox, folder, {"own": plan}))
    story = stack.enter_context(telling(made, "own", space))
    story.nodes(annotations={POLICY: "wait"}, pods=1)
    return made, story


@pytest.mark.parametrize(
    ("kills", "hosts", "rounds"),
    [(2, 2, 1), pytest.param(20, 10, 5, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
    ids=["short", "long"],
)
def test_kills_of_the_leader_lose_little_and_nothing_is_there_twice(
    sandbox: Sandbox, crd: None, home: str, namespace: str, tmp_path: Path, eventually: Eventually,
    kills: int, hosts: int, rounds: int,
) -> None:  # fmt: skip
    """The long one also has 200 bare metal hosts claimed meanwhile."""
    claims = 200 if kills > 2 else 0
    plan, pairs = world_of(hosts)
    with ExitStack() as stack:
        if claims:
            metal_world.install(sandbox)
            stack.callback(metal_world.uninstall, sandbox)
        made, story = ready_story(stack, sandbox, tmp_path, namespace, plan)
        told, folder = made.environment(), folders(tmp_path)
        flags = ("--only", "maintenance,metal", "--metal-writes-per-second", "10") if claims else ()
        tail = Tail(sandbox)
        stack.callback(tail.close)
        killed = Killed(lambda life: operator(sandbox, folder(life), home, *flags, told=told), kills, seed=7)
        killed.start()
        stack.callback(killed.end)
        world = metal_world.World(sandbox, namespace) if claims else None
        if world is not None:
            stack.callback(world.scrub)
            world.make_hosts(*(f"h{number}" for number in range(claims)), ready=True)
            world.make_machines(*(f"m{number}" for number in range(claims)))
        for _ in range(rounds):
            maintain(story, pairs, 600)
        running = killed.survivor(1200)
        if world is not None:
            until(lambda: len(metal_world.one_to_one(world)) == claims, "every host is claimed", 600)
        eventually(lambda: is_complete(sandbox, running), 120, "each layer's last entry is its state")
        time.sleep(3)
        entries = exported(sandbox, running)
        host_of = metal_world.one_to_one(world) if world is not None else {}
        verdict = judge(entries, audited_actions(tail, killed.users, "local", host_of), killed.kills)
        print(f"{len(killed.kills)} kills, {hosts * rounds} maintenances, {claims} claims: {verdict}")
        assert (verdict.twice, verdict.broken, verdict.missing, verdict.unmarked) == ([], [], [], [])
        assert verdict.gaps > 0  # not one per kill: a leader that was killed before it stored anything left no trace
        resumed = exported(sandbox, running, entries[len(entries) // 2].id)
        assert resumed[: len(entries) - len(entries) // 2 - 1] == entries[len(entries) // 2 + 1 :]


def test_a_maintenance_is_told_with_actions_refusals_and_one_operation(
    sandbox: Sandbox, crd: None, home: str, namespace: str, tmp_path: Path
) -> None:
    plan, pairs = world_of(1)
    with ExitStack() as stack:
        made, story = ready_story(stack, sandbox, tmp_path, namespace, plan)
        running = stack.enter_context(operator(sandbox, tmp_path, home, told=made.environment()))
        node = f"node:local/{story.full('w0')}"

        def told() -> list[Entry]:
            return [entry for entry in exported(sandbox, running) if entry.key == node]

        def states() -> list[str]:
            return [entry.new for entry in told() if entry.new]

        until(lambda: is_readable(sandbox, running), "this replica leads and has read the history", 60)
        until(told, "its first entry is stored", 60)
        maintain(story, pairs, 120)
        until(lambda: "stopped" in states() and states()[-1] == "in service", "its return is stored", 60, told)
        time.sleep(2)  # the answer to the last write is an entry too
        entries = told()
        assert states()[:3] == ["in service", "draining", "stopped"]
        done = {(entry.reason, entry.result) for entry in entries if entry.what is What.ACTION}
        assert {("PatchNode", "ok"), ("EvictPod", "ok")} <= done
        assert entries[0].what is What.INFERRED
        operations = {entry.operation for entry in entries[1:]}
        assert len(operations) == 1
        assert operations.pop().startswith("maintenance/")
        vm = {(entry.reason, entry.result) for entry in exported(sandbox, running) if entry.key.startswith("vm:")}
        assert {("ShutDownGuest", "ok"), ("PowerOn", "started")} <= vm
        lines = {line["id"]: line for line in log_lines(running)}
        assert {entry.id for entry in entries} <= set(lines)
        last = [entry for entry in entries if entry.new][-1]
        assert lines[last.id]["to"] == "in service"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        found.start()
        yield found


@pytest.mark.parametrize("away", [5, pytest.param(60, marks=pytest.mark.full)])
def test_a_postgresql_that_is_away_and_back_misses_nothing(
    sandbox: Sandbox, crd: None, home: str, tmp_path: Path, make_node: MakeNode, server: PostgresServer,
    eventually: Eventually, away: int,
) -> None:  # fmt: skip
    name = make_node()
    key = f"node:local/{name}"
    database = f"away{away}"
    server.run_sql(f"CREATE DATABASE {database}")
    told = {"HOSTLER_HISTORY_URL": server.url(database), "HOSTLER_CLUSTER_NAME": "local"}
    with (
        operator(sandbox, tmp_path, home, told=told) as running,
        operator(sandbox, tmp_path, home, told=told, name="standby", user=running.user) as standby,
    ):
        running.said("leading")
        eventually(lambda: [one for one in exported(sandbox, running) if one.key == key], 60, "its first entry")
        server.kill()
        began = time.monotonic()
        for word in ("cordon", "uncordon", "cordon"):
            sandbox.kubectl(word, name)
            time.sleep(1.5)
        eventually(lambda: "PostgreSQL" in doctor(sandbox, running), 60, "doctor says that it is away")
        time.sleep(max(0.0, away - (time.monotonic() - began)))
        server.start()

        def states() -> list[str]:
            return [entry.new for entry in exported(sandbox, standby) if entry.key == key]

        eventually(lambda: states() == ["in service", "held", "in service", "held"], 60, "nothing is missing")
        rows = server.run_sql(f"SELECT new_state FROM host_history WHERE key = '{key}' ORDER BY counter", database)
        assert rows.splitlines() == states()
        eventually(lambda: "PostgreSQL" not in doctor(sandbox, running), 60, "doctor has nothing to say")
        config = read(running, "/v1/config").decode()
    for text in (config, running.log.read_text(), standby.log.read_text()):
        assert PASSWORD not in text
        assert "s3cr3t" not in text


def doctor(sandbox: Sandbox, running: Running) -> str:
    return hostler(sandbox.kubeconfig, "doctor", "--operator", running.url).stdout

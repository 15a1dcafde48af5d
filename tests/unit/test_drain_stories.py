"""A drain interrupted everywhere, against a small pure model of a node, its budgets and its API server.

The model drives `decide` alone. It is not a Kubernetes: it has just the rules of eviction, so that a decision can be
taken on a stale look, cut after any action, and forgotten at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.drain.budgets import Says, standing
from hostler.drain.decide import decide
from hostler.drain.model import Answer, Decision, Evict, Facts, Memory, Outcome, Policy, State
from hostler.drain.order import replicas_of
from hostler.host.facts import Known
from hostler.kube.records import Pod, PodDisruptionBudget
from tests.sizes import examples
from tests.unit.test_drain_budgets import budget
from tests.unit.test_drain_decide import facts
from tests.unit.test_drain_filters import pod

START = 1_700_000_000.0
POLICY = Policy(timeout=None)


@dataclass
class World:
    """The truth. `posts` are all evictions asked for, by pod UID."""

    pods: dict[str, Pod]
    budgets: dict[str, PodDisruptionBudget]
    volumes: tuple[str, ...] = ()
    now: float = START
    version: int = 10
    peers: tuple[Pod, ...] = ()  # replicas elsewhere
    posts: dict[str, list[tuple[float, Outcome]]] = field(default_factory=lambda: defaultdict(list))

    def look(self, memory: Memory) -> Facts:
        pods = list(self.pods.values())
        seen = facts(pods, list(self.budgets.values()), self.volumes, at=self.now)
        sizes = replicas_of((*pods, *self.peers))
        return replace(seen, peers=self.peers, memory=memory.seen(tuple(pods), self.now, sizes))

    def evict(self, action: Evict) -> Answer:
        answer = self._evict(action)
        self.posts[action.uid].append((self.now, answer.outcome))
        return answer

    def _evict(self, action: Evict) -> Answer:
        found = self.pods.get(action.key)
        if found is None:
            return Answer(Outcome.GONE)
        if found.metadata.uid != action.uid:
            return Answer(Outcome.MOVED)
        over = standing(found, self.budgets.values())
        if over.says is Says.SEVERAL:
            return Answer(Outcome.SEVERAL_BUDGETS)
        if over.says is Says.HOLDS:
            return Answer(Outcome.REFUSED, "not now")
        if over.says is Says.ALLOWS:
            self.allow(over.names[0], over.budgets[0].status.disruptions_allowed - 1)
        metadata = msgspec.structs.replace(found.metadata, deletion_timestamp="2023-11-14T22:13:20Z")
        self.pods[action.key] = msgspec.structs.replace(found, metadata=metadata)
        return Answer(Outcome.ACCEPTED)

    def allow(self, name: str, allowed: int) -> None:
        """The budget's controller, or the API server itself, writes its status."""
        self.version += 1
        old = self.budgets[name]
        status = msgspec.structs.replace(old.status, disruptions_allowed=allowed)
        metadata = msgspec.structs.replace(old.metadata, resource_version=str(self.version))
        self.budgets[name] = msgspec.structs.replace(old, status=status, metadata=metadata)

    def kubelet(self) -> None:
        """Terminating pods end, helpers start elsewhere, and with the last pod the volumes go."""
        ended = [one.metadata for one in self.pods.values() if one.metadata.deletion_timestamp]
        self.peers += tuple(
            pod(f"{one.name}-new", namespace=one.namespace, labels={}, node="w2")
            for one in ended
            if one.namespace == "kube-system"
        )
        self.pods = {key: one for key, one in self.pods.items() if not one.metadata.deletion_timestamp}
        if all(one.metadata.owner_references and one.metadata.owner_references[0].kind == "DaemonSet"
               for one in self.pods.values()):  # fmt: skip
            self.volumes = ()


def small_world() -> World:
    pods = [
        pod("a"), pod("b"), pod("c"),
        pod("bare", owner="", labels={}), pod("agent", owner="DaemonSet", labels={}),
        pod("dns-0", namespace="kube-system", labels={}), pod("dns-1", namespace="kube-system", labels={}),
        pod("batch", labels={}, priority=-1), pod("vital", labels={}, priority=1000),
        pod("done", labels={}, phase="Succeeded", ready=False), pod("going", labels={}, terminating=True),
    ]  # fmt: skip
    return World(
        {f"{one.metadata.namespace}/{one.metadata.name}": one for one in pods}, {"web/web": budget(allowed=1)}, ("pv",)
    )


def run(world: World, crash_after: set[int], rounds: int = 200) -> Decision:
    """Drive the drain to its end. `crash_after`: the numbers of the actions after which the process dies."""
    memory, done = Memory(), 0
    for _ in range(rounds):
        seen = world.look(memory)
        memory = seen.memory
        decision = decide(seen, POLICY, world.now)
        for action in decision.actions:
            answer = world.evict(action)
            memory = memory.after(action, answer, POLICY, world.now)
            done += 1
            if done in crash_after:
                memory = Memory()
                break
        if decision.over:
            return decision
        if not decision.actions:
            world.kubelet()
            for name in world.budgets:
                world.allow(name, 1)
            world.now += 1
    raise AssertionError(f"no end after {rounds} rounds: {decision.why}")


def test_without_interruption_each_pod_is_asked_exactly_once() -> None:
    world = small_world()
    assert run(world, set()).state is State.DRAINED
    assert set(world.pods) == {"web/agent"}
    assert {uid: len(posts) for uid, posts in world.posts.items()} == dict.fromkeys(
        ["uid-web-a", "uid-web-b", "uid-web-c", "uid-web-bare", "uid-web-batch", "uid-web-vital", "uid-web-done",
         "uid-kube-system-dns-0", "uid-kube-system-dns-1"], 1,
    )  # fmt: skip


@pytest.mark.parametrize("second", range(0, 12, 3))
@pytest.mark.parametrize("first", range(1, 10))
def test_killed_after_any_action_it_ends_the_same_and_asks_nobody_more_than_once_more(first: int, second: int) -> None:
    world, crashes = small_world(), {first, first + second}
    assert run(world, crashes).state is State.DRAINED
    assert set(world.pods) == {"web/agent"}
    assert all(len(posts) <= 1 + len(crashes) for posts in world.posts.values())


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_any_story(data: st.DataObject) -> None:
    """Stale looks, lost answers, crashes, replaced pods, budgets that come, go and change; then it calms down."""
    world, memory, lives = small_world(), Memory(), 1
    looks = [world.look(memory)]
    last_look = 0  # a cache is late, but never goes back in time
    last: dict[str, tuple[float, Outcome]] = {}  # what this life of the process knows of its own POSTs
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["work", "work", "kubelet", "time", "crash", "budget", "several", "replace"])):
            case "work":
                looks.append(world.look(memory))
                last_look = data.draw(st.integers(max(last_look, len(looks) - 3), len(looks) - 1))
                stale = looks[last_look]
                assert isinstance(stale.pods, Known)
                memory = memory.seen(stale.pods.value, world.now, replicas_of((*stale.pods.value, *stale.peers)))
                decision = decide(replace(stale, memory=memory), POLICY, world.now)
                cut = data.draw(st.integers(0, len(decision.actions)))
                for action in decision.actions[:cut]:
                    answer = world.evict(action)
                    if action.uid in last:
                        at, outcome = last[action.uid]
                        assert outcome is not Outcome.ACCEPTED, "asked again although accepted"
                        assert world.now - at >= 1, "asked in a storm"
                    last[action.uid] = world.now, answer.outcome
                    memory = memory.after(action, answer, POLICY, world.now)
            case "kubelet":
                world.kubelet()
            case "time":
                world.now += data.draw(st.sampled_from([0.5, 1, 5, 60]))
            case "crash":
                memory, lives, last = Memory(), lives + 1, {}
            case "budget" if "web/web" in world.budgets:
                world.allow("web/web", data.draw(st.integers(0, 2)))
            case "several":
                if "web/all" in world.budgets:
                    del world.budgets["web/all"]
                else:
                    world.budgets["web/all"] = budget("all", allowed=1, version=world.version)
            case "replace" if "web/a" in world.pods:
                world.version += 1
                world.pods["web/a"] = pod("a", uid=f"uid-web-a-{world.version}")
            case _:
                pass
    for posts in world.posts.values():
        assert sum(outcome is Outcome.ACCEPTED for _, outcome in posts) <= lives
    world.budgets.pop("web/all", None)
    assert run(world, set()).state is State.DRAINED
    assert set(world.pods) == {"web/agent"}

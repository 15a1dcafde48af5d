"""Runs `decide_machine` forward on a world in memory: what becomes of a machine from here on. Pure.

The decisions are the operator's own. The rest of the world is played in its simplest form:

- the API server does at once what it is asked, and nobody else writes; other machines and their hosts stay as they are;
- Baremetal Operator installs the machine's host once it has an image and is online, and empties it once it has none. It
  never fails, and leaves alone a host that is paused or reports an error;
- data is rendered as soon as it is asked for, and the node of a provisioned host comes up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import msgspec

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import DataClaim
from hostler.instant import Instant
from hostler.kube.kinds import SECRET
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.claiming.choose import NOWHERE, Around, Policy, Wish, choose
from hostler.metal.decide import decide_claim, decide_machine
from hostler.metal.model import Decision, Facts, NodeSeen, Rendered, Step, Write, host_of
from hostler.metal.moving import movable_write, owner_change
from hostler.metal.provisioning import provider_ids
from hostler.metal.status import is_settled, status_write

T = TypeVar("T", BareMetalHost, Metal3Machine)
PASSES_MOST = 50
# What Baremetal Operator makes of a host: whatever it has, then with an image, and without.
_GOES_ON = {
    "registering": "inspecting", "inspecting": "preparing", "preparing": "available", "deprovisioning": "available",
}  # fmt: skip
_INSTALLS = {"available": "provisioning", "ready": "provisioning", "provisioning": "provisioned"}
_EMPTIES = {"provisioned": "deprovisioning", "provisioning": "deprovisioning"}


@dataclass(frozen=True, slots=True)
class Happens:
    """Something that another party does, without being asked by a write of this moment."""

    who: str
    what: str


Event: TypeAlias = Write | Happens


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides beside the facts. `around`: facts that are not on hosts; `pick(n)` draws one of n."""

    policy: Policy
    fast_track: bool = False
    around: Callable[[Wish], Around] = lambda _: NOWHERE
    pick: Callable[[int], int] = lambda _: 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would happen, in order: `begins` of the events are the first decision's own writes."""

    events: tuple[Event, ...]
    begins: int
    first: Decision
    last: Decision
    facts: Facts  # at the end
    gone: bool  # the machine
    hosts: tuple[BareMetalHost, ...]


def simulate_machine(
    facts: Facts, hosts: Iterable[BareMetalHost], rules: Rules, now: Instant, passes: int = PASSES_MOST
) -> Forecast:
    """The course of one machine from these facts on. `hosts`: all of its namespace. `passes`: looks at most."""
    return _Course(facts, hosts, rules, now).run(passes)


class _Course:
    def __init__(self, facts: Facts, hosts: Iterable[BareMetalHost], rules: Rules, now: Instant) -> None:
        self._hosts = {key_of(host.metadata): host for host in hosts}
        self._facts, self._rules, self._now = facts, rules, now
        self._gone = False
        self._version = 0

    def run(self, passes: int) -> Forecast:
        first = last = self._decide()
        events: list[Event] = list(self._act(first))
        begins = len(events)
        for _ in range(passes):
            if self._gone:
                break
            last = self._decide()
            # The others come when the operator has nothing to write: in life they are slower by minutes.
            happened: list[Event] = [*self._act(last)] or [*self._others()]
            if not happened:
                break
            events += happened
        hosts = tuple(self._hosts.values())
        return Forecast(tuple(events), begins, first, last, self._facts, self._gone, hosts)

    # -- the operator

    def _decide(self) -> Decision:
        decision = decide_machine(self._facts, fast_track=self._rules.fast_track)
        if decision.wish is None:
            return decision
        rules, wish = self._rules, decision.wish
        choice = choose(wish, self._hosts.values(), rules.policy, rules.around(wish), rules.pick)
        return decide_claim(self._facts, choice)

    def _act(self, decision: Decision) -> Iterator[Write]:
        """Write what is decided, in the order of the operator, which decides again after each part."""
        if decision.unpause:
            yield from map(self._apply, decision.unpause)
            decision = self._decide()
        if decision.make_movable and self._facts.host is not None:
            whole = msgspec.to_builtins(self._facts.host)
            write = movable_write(whole, self._facts.machine.metadata, decision.make_movable)
            if write is not None:
                yield self._apply(write)
        yield from map(self._apply, decision.writes)
        if decision.step is Step.KEEP and decision.writes:
            tried, decision = decision.writes, self._decide()
            rest = (one for one in decision.writes if one not in tried and one.kind != metal3.BARE_METAL_HOST)
            yield from map(self._apply, rest)
        if self._gone or not decision.said:
            return
        shown = status_write(self._facts.machine, decision.said, decision.status, self._now)
        if shown is not None:
            yield self._apply(shown)

    def _apply(self, write: Write) -> Write:
        if write.kind == metal3.BARE_METAL_HOST:
            key = names.key(write.namespace, write.name)
            self._hosts[key] = self._patched(self._hosts[key], write.body)
        elif write.kind == metal3.METAL3_MACHINE:
            machine = self._patched(self._facts.machine, write.body)
            self._facts = replace(self._facts, machine=machine)
            self._gone = bool(machine.metadata.deletion_timestamp) and not machine.metadata.finalizers
        elif write.kind == metal3.METAL3_DATA_CLAIM and self._facts.data_claim is not None:
            made = msgspec.convert(write.body, DataClaim) if write.verb == "create" else None
            self._facts = replace(self._facts, data_claim=replace(self._facts.data_claim, claim=made))
        elif write.kind == SECRET:
            label = write.body["metadata"]["labels"][capi.CLUSTER_NAME]
            self._facts = replace(self._facts, secret_cluster=label or "")
        self._observe()
        return write

    def _patched(self, record: T, body: dict[str, Any]) -> T:
        self._version += 1
        version = {"metadata": {"resourceVersion": f"{record.metadata.resource_version}.{self._version}"}}
        whole = merge_patch(merge_patch(msgspec.to_builtins(record), body), version)
        return msgspec.convert(whole, type(record))

    def _observe(self) -> None:
        """The facts about hosts, as the caches give them."""
        machine = self._facts.machine
        hosts = self._hosts.values()
        own = [one for one in hosts if one.spec.consumer_ref is not None and one.spec.consumer_ref.is_machine(machine)]
        named = self._hosts.get(machine.metadata.annotations.get(names.HOST_ANNOTATION, ""))
        owned = (one for one in hosts if owner_change(one.metadata, machine.metadata))
        host = host_of(machine, own, named)
        self._facts = replace(self._facts, host=host, several=len(own) > 1, owned=tuple(owned))

    # -- the others

    def _others(self) -> Iterator[Happens]:
        facts, host = self._facts, self._facts.host
        if host is None or not facts.associated or facts.paused:
            return
        going = bool(facts.machine.metadata.deletion_timestamp)
        if facts.rendered is not None and not facts.rendered.ready and not going:
            yield Happens("Metal3Data", facts.rendered.why or "its data is rendered")
            self._facts = replace(facts, rendered=Rendered(True, name=facts.rendered.name))
            return
        if names.PAUSED in host.metadata.annotations or host.failing:
            return
        state = _next_state(host)
        if state:
            self._put(host, {"provisioning": {"state": state}, "poweredOn": host.spec.online})
            yield Happens("Baremetal Operator", f"host {host.metadata.name} becomes {state}")
        elif host.state == "externally provisioned" and host.status.powered_on != host.spec.online:
            self._put(host, {"poweredOn": host.spec.online})
            yield Happens("Baremetal Operator", f"host {host.metadata.name} is switched {_on_off(host.spec.online)}")
        elif host.state == "provisioned" and not going and not is_settled(facts.machine) and not _has_node(facts):
            node = NodeSeen(host.metadata.name, provider_ids(facts.machine, host)[0])
            self._facts = replace(facts, node=node)
            yield Happens("node", f"the node of host {host.metadata.name} comes up")

    def _put(self, host: BareMetalHost, status: dict[str, Any]) -> None:
        self._hosts[key_of(host.metadata)] = self._patched(host, {"status": status})
        self._observe()


def _next_state(host: BareMetalHost) -> str:
    if host.state in _GOES_ON:
        return _GOES_ON[host.state]
    if host.imaged:
        return _INSTALLS.get(host.state, "") if host.spec.online else ""
    return _EMPTIES.get(host.state, "")


def _has_node(facts: Facts) -> bool:
    return facts.node is not None and bool(facts.node.provider_id)


def _on_off(on: bool) -> str:
    return "on" if on else "off"


def merge_patch(whole: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7386): null removes."""
    found = dict(whole)
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            had = found.get(name)
            found[name] = merge_patch(had if isinstance(had, dict) else {}, value)
        else:
            found[name] = value
    return found

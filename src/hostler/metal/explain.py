"""Why a machine has its host, or none; what would become of it; why a host is free or unavailable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hostler.apis.metal3 import Metal3Machine
from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen, UnknownName
from hostler.host.conditions import names as listed
from hostler.instant import Instant
from hostler.kube.client import Gate
from hostler.kube.records import HasMetadata, key_of
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.claiming.choose import Wish
from hostler.metal.controller import MachineReconciler
from hostler.metal.decide import decide_claim
from hostler.metal.listing import describe_host
from hostler.metal.model import Facts, MakeMovable, Write
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.remediation.decide import decide_remediation
from hostler.metal.remediation.model import Remediation
from hostler.metal.scope import Scope
from hostler.metal.simulate import Event, Forecast, Happens, simulate_machine

R = TypeVar("R", bound=HasMetadata)
Decided = TypeVar("Decided", Metal3Machine, Remediation)
MOST_HOSTS = 200  # an answer stays readable; the rest is counted


@dataclass(frozen=True, slots=True)
class MetalExplainers:
    """Explains `metal3machine/NAMESPACE/NAME`, `baremetalhost/...` and `metal3remediation/...`; unique names do."""

    keeper: MachineReconciler
    remediator: RemediationReconciler
    gate: Gate
    clock: Callable[[], Instant]

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("metal3machine", "metal", self.machine, self.plan_machine))
        registry.add(Explainer("baremetalhost", "metal", self.host))
        registry.add(Explainer("metal3remediation", "metal", self.remediation, self.remediation))

    @property
    def scope(self) -> Scope:
        return self.keeper.caches.scope

    def _unread(self, name: str) -> Explanation | None:
        """That its namespace is out of scope; None: it is not, so there is no object of that name."""
        namespace, slash, _ = name.partition("/")
        why = self.scope.why_not_read(namespace) if slash else ""
        return Explanation("metal", why) if why else None

    def _find(self, store: Store[Decided], name: str) -> Decided | Explanation | None:
        """The object, or what is answered where nothing is decided about it; None: there is none of that name."""
        found = _named(store, name)
        if found is None:
            return self._unread(name)
        if outside := self.scope.why_filtered(found.metadata):
            return Explanation("metal", outside)
        if why := self.keeper.caches.unread():
            return Explanation("metal", f"Nothing is decided yet: {why}.")
        return found

    def machine(self, name: str) -> Explanation | None:
        found = self._find(self.keeper.caches.machines.store, name)
        if found is None or isinstance(found, Explanation):
            return found
        facts = self.keeper.explained_facts(found)
        seen = (*_facts(facts), *_conditions(found))
        decision = self.keeper.decide(facts)
        if decision.wish is not None:
            return self._choosing(facts, decision.wish, seen)
        writes = (*decision.unpause, *decision.writes)
        actions = (*self._pausing(facts, decision.make_movable), *self._actions(writes))
        return Explanation("metal", decision.why, facts=seen, actions=actions)

    def plan_machine(self, name: str) -> Explanation | None:
        """What would become of it from now on, if nothing else changes."""
        found = self._find(self.keeper.caches.machines.store, name)
        if found is None or isinstance(found, Explanation):
            return found
        facts = self.keeper.explained_facts(found)
        hosts = self.keeper.caches.hosts.store.by("namespace", found.metadata.namespace)
        forecast = simulate_machine(facts, hosts, self.keeper.rules, self.clock())
        return explain_forecast(forecast, self.gate() or "")

    def _pausing(self, facts: Facts, wanted: MakeMovable | None) -> tuple[Action, ...]:
        host = facts.host
        if host is None or wanted is None:
            return ()
        return (Action("patch", f"baremetalhost/{host.metadata.name}", wanted.why, held_back=self.gate() or ""),)

    def _choosing(self, facts: Facts, wish: Wish, seen: tuple[FactSeen, ...]) -> Explanation:
        choice = self.keeper.claims.choose(wish)
        refused = sorted((key, why.text) for key, why in choice.refused.items())
        rules = [RuleSeen(f"host {key}", "not chosen", f"{why}.") for key, why in refused[:MOST_HOSTS]]
        if len(refused) > MOST_HOSTS:
            rules.append(RuleSeen("hosts", "not shown", f"{len(refused) - MOST_HOSTS} more were not chosen."))
        actions: tuple[Action, ...] = ()
        if choice.host is not None:
            key = key_of(choice.host.metadata)
            rules.insert(0, RuleSeen(f"host {key}", "chosen", f"{choice.why}.", decided=True))
            actions = (Action("claim", f"baremetalhost/{key}", choice.why, held_back=self.gate() or ""),)
        return Explanation("metal", decide_claim(facts, choice).why, tuple(rules), seen, actions)

    def _actions(self, writes: tuple[Write, ...]) -> tuple[Action, ...]:
        back = self.gate() or ""
        return tuple(Action(one.verb, f"{one.kind.kind.lower()}/{one.name}", one.why, held_back=back) for one in writes)

    def remediation(self, name: str) -> Explanation | None:
        found = self._find(self.remediator.caches.remediations.store, name)
        if found is None or isinstance(found, Explanation):
            return found
        facts = self.remediator.facts(found)
        step = decide_remediation(facts, self.clock())
        host, status = facts.host, found.status
        seen = (
            FactSeen("phase", status.phase or "none"),
            FactSeen("retries", f"{status.retry_count} of {found.spec.strategy.retry_limit}"),
            FactSeen("last reboot", status.last_remediated or "never"),
            FactSeen("host", key_of(host.metadata) if host is not None else "none"),
            FactSeen("host is on", host.status.powered_on if host is not None else "none"),
            FactSeen("node", (facts.owner.status.node_ref.name if facts.owner is not None else "") or "none"),
        )
        return Explanation("metal", step.why, facts=seen, actions=self._actions(step.writes))

    def host(self, name: str) -> Explanation | None:
        found = _named(self.keeper.caches.hosts.store, name)
        if found is None:
            return self._unread(name)
        line = describe_host(found)
        facts = (
            FactSeen("state", line.state),
            FactSeen("consumer", line.consumer or "none"),
            FactSeen("failure domain", line.failure_domain or "none"),
            FactSeen("last used", line.last_used or "never"),
        )
        free = "It is free." if not line.why_not_available else f"It is unavailable: {line.why_not_available}."
        return Explanation("metal", free, facts=facts)


def _named(store: Store[R], name: str) -> R | None:
    """By its key, or by its name alone where no other has it."""
    found = [one for one in store if one.metadata.name == name] if "/" not in name else []
    if len(found) > 1:
        raise UnknownName(
            f'Several are named "{name}"; say NAMESPACE/NAME: {listed(key_of(m.metadata) for m in found)}.'
        )
    if why := store.unreadable.get(name, ""):
        raise UnknownName(f'"{name}" is there and cannot be read: {why}.')
    return found[0] if found else store.get(name)


def _facts(facts: Facts) -> tuple[FactSeen, ...]:
    host = facts.host
    return (
        FactSeen("cluster", facts.cluster_name or "none"),
        FactSeen("host", key_of(host.metadata) if host is not None else "none"),
        FactSeen("host state", host.state if host is not None else "none"),
        FactSeen("may have again the hosts of", facts.reuse or "nobody"),
        FactSeen("names the host", facts.named_host or "none"),
    )


def _conditions(machine: Metal3Machine) -> tuple[FactSeen, ...]:
    return tuple(
        FactSeen(f"condition {one.type}", f"{one.status} ({one.reason}): {one.message}".rstrip(": "))
        for one in machine.status.conditions
        if one.type in (names.READY, names.ASSOCIATED, names.DATA_READY, names.HEALTHY)
    )


# -- the course that `plan` shows


def explain_forecast(forecast: Forecast, held_back: str) -> Explanation:
    """`held_back`: why nothing is written now; empty: it is."""
    actions = tuple(_actions(forecast.events, held_back))
    outcome = forecast.first.why
    if forecast.gone:
        outcome += " In the end the machine is gone."
    elif forecast.last.why != forecast.first.why:
        outcome += f" In the end: {forecast.last.why}"
    return Explanation("metal", outcome, actions=actions)


def _actions(events: tuple[Event, ...], held_back: str) -> Iterator[Action]:
    """A write of the machine's status is shown where it makes the machine ready."""
    for event in events:
        if isinstance(event, Happens):
            yield Action("wait for", event.who, event.what)
        elif event.subresource is None:
            yield Action(event.verb, f"{event.kind.kind.lower()}/{event.name}", event.why, held_back)
        elif _makes_ready(event.body):
            yield Action("report Ready", f"{event.kind.kind.lower()}/{event.name}", event.why, held_back)


def _makes_ready(body: dict[str, object]) -> bool:
    status = body.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return any(one["type"] == names.READY and one["status"] == "True" for one in conditions)

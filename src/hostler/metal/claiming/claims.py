"""Taking a host for a machine: choose, write the intent on the machine, claim the host under its version.

One host never goes to two machines: the claim is a patch that holds only for the version of the host that was chosen.
One machine never takes two hosts: the intent is a patch that holds only for the version of the machine that was read,
and an intent from an earlier look, whoever wrote it, is read afresh before it is acted on.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import structlog

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.kube.errors import Conflict, NotFound
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.claiming.choose import (
    Around,
    Choice,
    Outcome,
    Policy,
    Selection,
    Wish,
    WrongSelector,
    choose,
    domain_of,
    is_final,
    refuse_host,
)
from hostler.metal.claiming.free_hosts import SAMPLES, FreeHosts, Sample, Waiting, is_free
from hostler.metal.claiming.refusal import why_shut
from hostler.metal.decide import decide_claim, wish_of
from hostler.metal.model import Decision, Facts
from hostler.metal.toolbox import Toolbox

log = structlog.get_logger("hostler.metal")

# A host that failed shows OK for some seconds at each retry.
DEBOUNCE_SECONDS = 10.0
# For so long the reasons why no host fits are kept for machines of one kind; only reasons, never a choice.
KEPT_SECONDS = 2.0
# Who was given kept reasons though hosts had changed since looks again after so long: not sooner, a thousand may.
OUTDATED_SECONDS = 10.0


class Claims:
    """Chooses and claims. Follows the host cache to know what is free and who waits."""

    def __init__(
        self,
        tools: Toolbox,
        policy: Policy,
        wake: Callable[[str], None],
        *,
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
        dice: random.Random | None = None,
    ) -> None:
        self._tools, self._caches, self.policy = tools, tools.caches, policy
        self._wake, self._later, self._clock, self._dice = wake, later, clock, dice or random.Random()  # nosec B311 # no secret
        self.waiting = Waiting(wake, self._suits)
        self.free = FreeHosts(self._dice, self._freed)
        self._steady: dict[str, float] = {}  # host -> when it will have been without an error for long enough
        # Why no host fits, by kind of wish: when that was found, after how many changes of hosts, and the groups.
        self._reasons: dict[tuple[object, ...], tuple[float, int, tuple[str, ...]]] = {}
        self._changes: Counter[str] = Counter()  # of hosts, by namespace

    # -- following the hosts

    def host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        self._changed(key)
        if after is None or after.failing:
            self._steady.pop(key, None)
        elif after.status.error_count and (before is None or before.failing) and key not in self._steady:
            self._steady[key] = self._clock() + DEBOUNCE_SECONDS
            self._later(DEBOUNCE_SECONDS + 0.01, lambda: self._calmed(key))
        self.free.changed(key, before, after)
        if before is not None and (label := before.metadata.labels.get(names.NODE_REUSE)) and why_shut(before) is None:
            self._unkept(before.metadata.namespace, label)

    def _unkept(self, namespace: str, label: str) -> None:
        """Who waits for a host kept for its kind may have any other once none is on its way."""
        hosts = map(self._caches.hosts.store.get, self.free.reserved(namespace, label))
        if any(one is not None and why_shut(one) is None for one in hosts):
            return
        for key in self.waiting.of(namespace):
            machine = self._caches.machines.store.get(key)
            if machine is not None and self._caches.facts(machine).reuse == label:
                self._wake(key)

    def _changed(self, key: str) -> None:
        """Whether this host can be had may be another answer now."""
        self._changes[key.partition("/")[0]] += 1

    def shaky(self, key: str) -> bool:
        """Whether this host had an error a moment ago."""
        return key in self._steady

    def _calmed(self, key: str) -> None:
        if self._clock() >= self._steady.get(key, float("inf")):
            del self._steady[key]
            self._changed(key)
            if (host := self._caches.hosts.store.get(key)) is not None:
                self._freed(host)

    def _freed(self, host: BareMetalHost, after: str = "") -> None:
        if key_of(host.metadata) not in self._steady:
            self.waiting.offer(host, after)

    def _suits(self, machine_key: str, host: BareMetalHost) -> bool:
        machine = self._caches.machines.store.get(machine_key)
        if machine is None:
            return False
        try:
            wish = wish_of(self._caches.facts(machine))
        except WrongSelector:
            return False
        return refuse_host(wish, host, self.policy, self.around(wish)) is None

    def looked(self, key: str) -> None:
        """A machine has looked; what it was offered and did not take is offered on."""
        offered = self.waiting.looked(key)
        host = self._caches.hosts.store.get(offered) if offered is not None else None
        if host is not None and is_free(host) and offered not in self.free.reservations:
            self._freed(host, key)

    def forget(self, key: str) -> None:
        """The machine is gone."""
        self.waiting.remove(key)
        self.looked(key)

    # -- choosing

    def around(self, wish: Wish) -> Around:
        me = key_of(wish.machine.metadata)
        return Around(
            taken=lambda host: self.free.taken(host, me),
            shaky=self.shaky,
            leaving=self._caches.leaving,
            used_domains=self._used_domains(wish) if self.policy.selection is Selection.SPREAD else {},
        )

    def _used_domains(self, wish: Wish) -> dict[str, int]:
        used: dict[str, int] = {}
        for host in self._caches.hosts.store.by("namespace", wish.machine.metadata.namespace):
            if host.spec.consumer_ref is not None or key_of(host.metadata) in self.free.reservations:
                used[domain_of(host)] = used.get(domain_of(host), 0) + 1
        return used

    def choose(self, wish: Wish) -> Choice:
        """Over every host: the whole truth, with a reason for each."""
        hosts = self._caches.hosts.store.by("namespace", wish.machine.metadata.namespace)
        return choose(wish, hosts, self.policy, self.around(wish), self._dice.randrange)

    def find_host(self, wish: Wish) -> Choice:
        """What `choose` says, without a look at every host wherever a sample of the free ones settles it."""
        if self.policy.selection is not Selection.RANDOM:
            return self.choose(wish)
        around, strict = self.around(wish), self.policy.strict_domains
        for most in SAMPLES:
            sample = self.free.sample(wish, strict=strict, most=most)
            choice = choose(wish, self._candidates(wish, sample), self.policy, around, self._dice.randrange)
            if is_final(wish, choice, whole_domain=sample.whole_domain):
                return choice
            if sample.whole:
                break
        kept, current, groups = self._kept(wish)
        if choice.host is None and kept and (current or sample.whole):  # every host was just looked at for its like
            return Choice(None, Outcome.NONE, groups, again=None if current else OUTDATED_SECONDS)
        choice = self.choose(wish)
        if choice.outcome is Outcome.NONE:
            self._keep(wish, choice.details)
        return choice

    def _candidates(self, wish: Wish, sample: Sample) -> list[BareMetalHost]:
        """The hosts of a sample, and those that have the machine as their consumer or that it names."""
        hosts, machine = self._caches.hosts.store, wish.machine
        named = self._caches.named_host(machine)
        special = (*hosts.by("consumer", key_of(machine.metadata)), *([named] if named is not None else []))
        found = {key_of(host.metadata): host for host in special}
        for key in sample.hosts:
            if key not in found and (host := hosts.get(key)) is not None:
                found[key] = host
        return list(found.values())

    def _kept(self, wish: Wish) -> tuple[bool, bool, tuple[str, ...]]:
        """Why no host fits, kept for a moment: a thousand waiting machines of one kind get one answer.

        Whether there is one, whether nothing has changed since, and the groups of reasons.
        """
        when, changes, groups = self._reasons.get(wish.same_kind(), (float("-inf"), 0, ()))
        return self._clock() - when <= KEPT_SECONDS, changes == self._so_far(wish), groups

    def _keep(self, wish: Wish, groups: tuple[str, ...]) -> None:
        if len(self._reasons) > 1000:
            self._reasons.clear()
        self._reasons[wish.same_kind()] = (self._clock(), self._so_far(wish), groups)

    def _so_far(self, wish: Wish) -> int:
        return self._changes[wish.machine.metadata.namespace]

    # -- claiming

    async def take(self, facts: Facts, wish: Wish) -> tuple[Facts, Decision]:
        """Give the machine a host, or the reason why not. Raises Conflict where another one was faster: look again."""
        key = key_of(facts.machine.metadata)
        choice = self.find_host(wish)
        decision = decide_claim(facts, choice)
        host = choice.host
        if host is None:
            self.waiting.add(key)
            return facts, decision
        self.waiting.remove(key)
        host_key = key_of(host.metadata)
        if self.free.taken(host_key, key):
            raise Conflict(409, "Conflict", f"{host_key} was reserved in the meantime")
        self.free.reservations[host_key] = key
        *intent, claim = decision.writes
        try:
            if facts.named_host not in ("", host_key):
                await self._still_out(facts.named_host, facts.machine)
            if not intent:
                await self._confirm(facts.machine, host_key)
            machine = facts.machine
            for write in intent:
                machine = await self._tools.send(write) or machine
            host = await self._tools.send(claim) or host
            return replace(facts, machine=machine, host=host), decision
        finally:
            self.free.reservations.pop(host_key, None)
            self._changed(host_key)

    async def _confirm(self, machine: Metal3Machine, host_key: str) -> None:
        """An intent from an earlier look or of another process: it may have been changed since we read it."""
        meta = machine.metadata
        fresh = await self._caches.machines.read(self._tools.client, meta.name, meta.namespace)
        if fresh.metadata.annotations.get(names.HOST_ANNOTATION) != host_key or fresh.metadata.deletion_timestamp:
            raise Conflict(409, "Conflict", f"{key_of(meta)} wants another host by now")

    async def _still_out(self, named: str, machine: Metal3Machine) -> None:
        """Before another host is taken: the one named before must really be out of the question, and not ours."""
        namespace, _, name = named.partition("/")
        if namespace != machine.metadata.namespace:
            return  # never one of ours, and not ours to read
        try:
            fresh = await self._caches.hosts.read(self._tools.client, name, namespace)
        except NotFound:
            return
        consumer = fresh.spec.consumer_ref
        if consumer is not None and consumer.is_machine(machine):
            raise Conflict(409, "Conflict", f"{named} is {key_of(machine.metadata)}'s already")

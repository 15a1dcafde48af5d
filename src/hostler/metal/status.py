"""What a machine that has its host shows: conditions, addresses, data, and whether it is ready. Pure.

Condition `BareMetalHostHealthy` ignores short outages of a BMC: a host whose BMC fails shows OK for some seconds at
each retry. So it turns False when the host shows an error a minute after its first one, and True again after a minute
without any. Nothing else depends on it: a node runs on without its BMC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from hostler.apis import metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Cluster, Metal3Machine
from hostler.host.conditions import Condition, Status, set_conditions
from hostler.instant import Instant
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.model import HOST_LOST, Facts, Said, Trouble, Write
from hostler.metal.provisioning import data_of, user_data_of, wrong_spec

# Nothing has to be installed on a host in these states.
PROVISIONED = ("provisioned", "externally provisioned")
PAUSED = Said(names.PAUSED_CONDITION, True, "Paused", "Its Cluster or it itself is paused.")
UNPAUSED = Said(names.PAUSED_CONDITION, False, "NotPaused")
# How often a workload cluster is asked for a node that has not come up; we do not watch other clusters.
NODE_LOOK_SECONDS = 10.0
DEBOUNCE_SECONDS = 60.0  # of errors of a BMC, and of their absence


def is_settled(machine: Metal3Machine) -> bool:
    """Its node was found once; that is not asked again."""
    return bool(machine.spec.provider_id) and machine.status.initialization.provisioned


def readiness_of(facts: Facts, host: BareMetalHost) -> tuple[bool, str, float | None]:
    """Whether the machine is ready, why, and when to look again.

    Cluster API mirrors it into the Machine. So once the node was found, an error of the BMC changes nothing here: the
    node runs on without it (`BareMetalHostHealthy` tells of it).
    """
    machine, name = facts.machine, host.metadata.name
    if is_settled(machine) and host.state in PROVISIONED:
        trouble = f" {error_of(host)}" if host.failing else ""
        return True, f"Host {name} is {host.state} and the machine is ready.{trouble}", None
    if host.failing and host.state not in PROVISIONED:
        return False, error_of(host), None
    if facts.rendered is not None and not facts.rendered.ready and not host.imaged:
        return False, f"Host {name} is this machine's; {facts.rendered.why}", None
    if not host.imaged and (wrong := wrong_spec(machine)):
        return False, f"Host {name} is this machine's, but nothing is installed on it: {wrong}", None
    if host.state != "provisioned":
        paused = host.metadata.annotations.get(names.PAUSED)
        held = f" and paused by {paused or 'another party'}" if paused is not None else ""
        return False, f"Host {name} is {host.state or 'new'}{held}.", None
    node = facts.node
    if node is None:
        return False, f"Host {name} is provisioned; its node is being looked for.", None
    if not node.provider_id:
        return False, f"Host {name} is provisioned; {node.why}", NODE_LOOK_SECONDS
    return True, f"Host {name} is provisioned and is node {node.name}.", None


def data_conditions(facts: Facts) -> list[Said]:
    rendered = facts.rendered
    if rendered is None:
        return [Said(names.METADATA, True, "NoDataTemplate"), Said(names.DATA_READY, True, "NoDataTemplate")]
    if rendered.ready:
        return [
            Said(names.METADATA, True, "AssociateMetal3MachineMetaDataSuccess"),
            Said(names.DATA_READY, True, "SecretsSet"),
        ]
    return [
        Said(
            names.METADATA, bool(rendered.name), "Associated" if rendered.name else "WaitingForMetal3Data", rendered.why
        ),
        Said(names.DATA_READY, False, "WaitingForMetal3Data", rendered.why),
    ]


def status_fields(facts: Facts, host: BareMetalHost) -> dict[str, Any]:
    """The fields of the machine's status beside its conditions."""
    found: dict[str, Any] = {}
    user_data = user_data_of(facts)
    meta_data, network_data = data_of(facts)
    refs = (("userData", user_data), ("metaData", meta_data), ("networkData", network_data))
    namespace = facts.machine.metadata.namespace
    for field, secret in refs:
        if secret is not None:
            found[field] = {"name": secret.name, "namespace": secret.namespace or namespace}
    if facts.rendered is not None and facts.rendered.name:
        found["renderedData"] = {"name": facts.rendered.name, "namespace": namespace}
    if addresses := addresses_of(host):
        found["addresses"] = addresses
    return found


def addresses_of(host: BareMetalHost) -> list[dict[str, str]]:
    hardware = host.status.hardware
    if hardware is None:
        return []
    found = [{"type": "InternalIP", "address": nic.ip} for nic in hardware.nics if nic.ip]
    if hardware.hostname:
        found += [{"type": kind, "address": hardware.hostname} for kind in ("Hostname", "InternalDNS")]
    return found[:32]


def conditions_change(of: Metal3Machine | Metal3Cluster, said: Sequence[Said], now: Instant) -> dict[str, Any]:
    """The conditions of an object with these among them; empty: it says so already."""
    seen = of.metadata.generation
    before: Sequence[Condition] = of.status.conditions
    after = set_conditions(before, (one.condition(seen) for one in said), now)
    return {"conditions": msgspec.to_builtins(list(after))} if after is not before else {}


def status_change(machine: Metal3Machine, said: Sequence[Said], fields: dict[str, Any], now: Instant) -> dict[str, Any]:
    """The patch of the machine's status; empty: it already says all that."""
    change = conditions_change(machine, said, now)
    # Through JSON, so that what is compared has lists where the API server has lists.
    current = msgspec.json.decode(msgspec.json.encode(machine.status)) if fields else {}
    change |= {field: value for field, value in fields.items() if current.get(field) != value}
    return {"status": change} if change else {}


def status_write(machine: Metal3Machine, said: Sequence[Said], fields: dict[str, Any], now: Instant) -> Write | None:
    """The write of the machine's status; None: it already says all that."""
    change, meta = status_change(machine, said, fields, now), machine.metadata
    if not change:
        return None
    why = next((one.message or one.reason for one in said if one.type == names.READY), said[0].message)
    return Write(metal3.METAL3_MACHINE, meta.name, meta.namespace, change, why, subresource="status")


def conditions_without_host(facts: Facts, said: Said, *, keep_ready: bool = False) -> tuple[Said, ...]:
    """What a machine shows that has no host, or for which nothing can be done now.

    What hinders only us (`keep_ready`) makes no machine less ready that is a node.
    """
    kept = is_settled(facts.machine) and (keep_ready or facts.associated)
    ready = () if kept else (Said(names.READY, False, said.reason, said.message),)
    # A host that is gone reports no error any more, and is not healthy for that.
    health = (replace(said, type=names.HEALTHY),) if said.reason == HOST_LOST else ()
    return (said, *ready, *health, UNPAUSED)


# -- whether the BMC of its host works


def decide_health(host: BareMetalHost, said: Condition | None, trouble: Trouble) -> tuple[Said | None, float | None]:
    """What the condition says now (None: nothing yet), and in how many seconds it may say something else. Pure."""
    told_false = said is not None and said.status == Status.FALSE
    if host.failing:
        left = DEBOUNCE_SECONDS - trouble.failing_for
        if told_false or left <= 0:
            return Said(names.HEALTHY, False, "BareMetalHostError", error_of(host)), None
        return (Said(names.HEALTHY, True, "NoError") if said is not None else None), left
    left = DEBOUNCE_SECONDS - trouble.calm_for
    if said is not None and told_false and left > 0:
        return Said(names.HEALTHY, False, said.reason, said.message), left
    return Said(names.HEALTHY, True, "NoError"), None


def error_of(host: BareMetalHost) -> str:
    """The error that a host reports, as a sentence."""
    status = host.status
    what = f"Host {host.metadata.name} reports {status.error_type or 'an error'}"
    return f"{what}: {status.error_message[:200]}" if status.error_message else f"{what}."


class Troubles:
    """Follows the host cache. What it remembers may be lost: then the minute begins again, and what was said stays."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()
        self._failing: dict[str, float] = {}  # host -> its first error
        self._calm: dict[str, float] = {}  # host -> when it stopped to show one

    def host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        now = self._clock()
        if after is None:
            self._failing.pop(key, None)
            self._calm.pop(key, None)
        elif after.failing:
            if now - self._calm.pop(key, now) >= DEBOUNCE_SECONDS:
                self._failing.pop(key, None)  # what was before is over
            self._failing.setdefault(key, now)
        elif before is None or before.failing:
            self._calm[key] = now

    def of(self, host: BareMetalHost) -> Trouble:
        now, key = self._clock(), key_of(host.metadata)
        return Trouble(now - self._failing.get(key, now), now - self._calm.get(key, self._began))

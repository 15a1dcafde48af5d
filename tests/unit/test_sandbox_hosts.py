"""The sandbox's host driver says and does what Baremetal Operator does: in our own words, and against recordings.

The words of a sequence: `state/operationalStatus/power[/error]`, repeats folded; `-` is a host without a status.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox.hosts.model import Fault, Json, Memory, Pace, Put, Secret, Wait, asked_fault
from hostler.sandbox.hosts.walk import Look

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
# Quicker than what was recorded everywhere, so that whatever the client did comes at the same point of the story.
PACE = Pace(registering=0.2, inspecting=0.3, provisioning=5, deprovisioning=3, power=0.4, jitter=0.9)

BORN = "- > registering//off > registering/OK/off"
NEW = f"{BORN} > inspecting/OK/off > preparing/OK/off > available/OK/off"
MENDED = "registering/OK/off > inspecting/OK/off > preparing/OK/off > available/OK/off > available/OK/on"
UP = f"{NEW} > provisioning/OK/off > provisioned/OK/off > provisioned/OK/on"
NO_SECRET = "- > registering//off > registering/error/off/registration-error"
OFF_AND_GONE = "powering off before delete/OK/on > deleting/OK/off > gone"


@dataclass
class World:
    """One host, its secret and a clock; what a client and the simulator write, as the API server would keep it."""

    pace: Pace = PACE
    fault: Fault = asked_fault
    host: Json = field(default_factory=dict)
    secret: Secret | None = None
    memory: Memory = field(default_factory=Memory)
    now: float = 0.0
    version: int = 0
    written: list[Json] = field(default_factory=list)  # every state of the host after a write of the simulator
    lines: list[tuple[str, Json]] = field(default_factory=list)  # after anybody's write
    tokens: list[str] = field(default_factory=list)

    def create(self, body: Json) -> None:
        self.host = copy.deepcopy(body)
        self.host["metadata"] |= {"generation": 1}
        self.host["metadata"].setdefault("namespace", "n")
        self.host["spec"].setdefault("automatedCleaningMode", "metadata")
        self._note()

    def patch(self, body: Json) -> None:
        before = copy.deepcopy(self.host["spec"])
        _merge(self.host, body)
        self.host["metadata"]["generation"] += self.host["spec"] != before
        self._note()

    def delete(self) -> None:
        self.host["metadata"]["deletionTimestamp"] = "now"
        self.host["metadata"]["generation"] += 1
        self._note()

    def set_secret(self, complete: bool | None) -> None:
        self.version += 1
        self.secret = None if complete is None else Secret(f"s{self.version}", complete)

    def run(self, until: float) -> None:
        """Let the simulator work up to this moment."""
        while self.host:
            put = Look(self.host, self.secret, self.memory, self.pace, self.now, self.fault).next()
            if isinstance(put, Wait):
                if put.seconds is None or self.now + put.seconds > until:
                    break
                self.now += max(put.seconds, 0.001)
                continue
            self._take(put)
            assert len(self.written) < 500, "it never comes to rest"
        self.now = max(self.now, until)

    def _take(self, put: Put) -> None:
        before, after = self.host, copy.deepcopy(put.host)
        if put.status:
            assert after["spec"] == before["spec"], "a write to the status changes nothing else"
        else:
            assert after.get("status") == before.get("status"), "a write to the object leaves the status alone"
            after["metadata"]["generation"] += after["spec"] != before["spec"]
        assert after != before, f"a write that changes nothing: {before}"
        if after["metadata"].get("deletionTimestamp") and not after["metadata"]["finalizers"]:
            self.tokens.append("gone")
            self.written.append({**before, "gone": True})
            self.lines.append(("simulator", self.written[-1]))
            self.host = {}
            return
        self.host = after
        self.written.append(copy.deepcopy(after))
        self._note("simulator")

    def _note(self, by: str = "client") -> None:
        self.lines.append((by, copy.deepcopy(self.host)))
        token = token_of(self.host)
        if not self.tokens or self.tokens[-1] != token:
            self.tokens.append(token)


def token_of(host: Json) -> str:
    status = host.get("status")
    if not status:
        return "-"
    power = "on" if status["poweredOn"] else "off"
    error = f"/{status['errorType'].replace(' ', '-')}" if status.get("errorType") else ""
    return f"{status['provisioning']['state']}/{status['operationalStatus']}/{power}{error}"


def _merge(into: Json, body: Json) -> None:
    for key, value in body.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


# -- in our own words --------------------------------------------------------------------------------------------------

IMAGE = {"url": "http://x/os.raw", "checksum": "http://x/sum", "checksumType": "sha256", "format": "raw"}
BMC = {"address": "redfish://1", "credentialsName": "b"}
PROVISION = {"spec": {"image": IMAGE, "online": True, "consumerRef": {"kind": "Metal3Machine", "name": "m"}}}


def annotate(name: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {name: value}}}


PAUSE = annotate("baremetalhost.metal3.io/paused", "")
UNPAUSE = annotate("baremetalhost.metal3.io/paused", None)
Doing = Any

# What `clusterctl move` does to an object that it has copied: all its annotations are replaced by one, its finalizers
# are taken off, it is deleted. Whoever is quick in between sees a host without a pause and puts its finalizer back.
MOVED_AWAY: tuple[Doing, ...] = (
    {"metadata": {"annotations": None}}, annotate("clusterctl.cluster.x-k8s.io/delete-for-move", ""),
    {"metadata": {"finalizers": []}}, "delete",
)  # fmt: skip
RESTORED: Json = {
    "conditions": [], "errorCount": 0, "errorMessage": "", "operationalStatus": "OK", "poweredOn": True,
    "provisioning": {"ID": "old", "bootMode": "UEFI", "image": IMAGE, "rootDeviceHints": {"deviceName": "/dev/sda"},
                     "state": "provisioned"},
    "goodCredentials": {}, "triedCredentials": {}, "provisioningFailCount": 0, "hardwareProfile": "unknown",
    "operationHistory": {name: {"start": None, "end": None} for name in ("register", "inspect", "provision")},
}  # fmt: skip
MOVED = {"baremetalhost.metal3.io/paused": "metal3.io/capm3", "baremetalhost.metal3.io/status": json.dumps(RESTORED)}

# What is done (`online` at the start, then one thing every hundred seconds) and what the host says of it.
STORIES: dict[str, tuple[tuple[Doing, ...], str]] = {
    "a new host that is to be on": ((), f"{NEW} > available/OK/on"),
    "a new host that is to be off": (("offline",), NEW),
    "an image is given": (("offline", PROVISION), UP),
    "an image is taken away again": (
        ("offline", PROVISION, {"spec": {"image": None, "online": False}}, {"spec": {"consumerRef": None}}),
        f"{UP} > deprovisioning/OK/on > available/OK/on > available/OK/off",
    ),
    "it stays on after its image is taken": (
        ("offline", PROVISION, {"spec": {"image": None}}),
        f"{UP} > deprovisioning/OK/on > available/OK/on > available/OK/off > available/OK/on",
    ),
    "power is switched": (
        ({"spec": {"online": False}}, {"spec": {"online": True}}),
        f"{NEW} > available/OK/on > available/OK/off > available/OK/on",
    ),
    "paused, nothing moves until it is not": (
        ("offline", PAUSE, PROVISION, ("still", "available/OK/off"), UNPAUSE),
        UP,
    ),
    "a reboot": (
        ("offline", PROVISION, annotate("reboot.metal3.io", "")),
        f"{UP} > provisioned/OK/off > provisioned/OK/on",
    ),
    "a reboot that somebody holds": (
        (
            "offline",
            PROVISION,
            annotate("reboot.metal3.io/x", ""),
            ("still", "provisioned/OK/off"),
            annotate("reboot.metal3.io/x", None),
        ),
        f"{UP} > provisioned/OK/off > provisioned/OK/on",
    ),
    "a plain reboot of an available host is ignored": (
        (annotate("reboot.metal3.io", ""),),
        f"{NEW} > available/OK/on",
    ),
    "a forced one is not": (
        (annotate("reboot.metal3.io", '{"force":true}'),),
        f"{NEW} > available/OK/on > available/OK/off > available/OK/on",
    ),
    "no BMC secret, then there is one": (("no secret", ("secret", True)), f"{NO_SECRET} > {MENDED}"),
    "a BMC secret without a password": (("bad secret", ("secret", True)), f"{NO_SECRET} > {MENDED}"),
    "a BMC address of no known kind": (
        ({"spec": {"bmc": {"address": "nonsense://1"}}, "first": True}, {"spec": {"bmc": {"address": "redfish://1"}}}),
        f"{NO_SECRET} > {MENDED}",
    ),
    "the BMC secret goes later": (
        (("secret", None), ("secret", True)),
        f"{NEW} > available/OK/on > available/error/on/registration-error > available/OK/on",
    ),
    "deleted while available": (("delete",), f"{NEW} > available/OK/on > {OFF_AND_GONE}"),
    "deleted while provisioned": (
        ("offline", PROVISION, "delete"),
        f"{UP} > deprovisioning/OK/on > {OFF_AND_GONE}",
    ),
    "deleted before it could be registered": (
        ("no secret", "delete"),
        f"{NO_SECRET} > deleting/error/off/registration-error > gone",
    ),
    "deleted while paused it waits": (
        (PAUSE, "delete", ("still", "available/OK/on"), UNPAUSE),
        f"{NEW} > available/OK/on > {OFF_AND_GONE}",
    ),
    "provisioned by somebody else": (
        ({"spec": {"externallyProvisioned": True}, "first": True}, {"spec": {"online": False}}, "delete"),
        (f"{BORN} > externally provisioned/OK/off > externally provisioned/OK/on > externally provisioned/OK/off"
        " > powering off before delete/OK/off > deleting/OK/off > gone"),
    ),
    "taken over from somebody else without an image": (
        ({"spec": {"externallyProvisioned": True}, "first": True}, {"spec": {"externallyProvisioned": False}}),
        (f"{BORN} > externally provisioned/OK/off > externally provisioned/OK/on > provisioned/OK/on"
        " > deprovisioning/OK/on > available/OK/on > available/OK/off > available/OK/on"),
    ),
    "detached, changed, attached again": (
        (
            "offline",
            PROVISION,
            annotate("baremetalhost.metal3.io/detached", "true"),
            {"spec": {"online": False}},
            ("still", "provisioned/detached/on"),
            annotate("baremetalhost.metal3.io/detached", None),
        ),
        f"{UP} > provisioned/detached/on > provisioned/OK/on > provisioned/OK/off",
    ),
    "deleted while detached": (
        ("offline", PROVISION, annotate("baremetalhost.metal3.io/detached", "true"), "delete"),
        f"{UP} > provisioned/detached/on > deleting/detached/on > deleting/OK/on > gone",
    ),
    "another image": (
        ("offline", PROVISION, {"spec": {"image": {"url": "http://x/other.raw"}}}),
        f"{UP} > deprovisioning/OK/on > available/OK/on > provisioning/OK/on > provisioned/OK/on",
    ),
    "inspected again": (
        ("offline", annotate("inspect.metal3.io", "")),
        f"{NEW} > inspecting/OK/off > preparing/OK/off > available/OK/off",
    ),
    "not inspected at all": (
        ("offline", {**annotate("inspect.metal3.io", "disabled"), "first": True}),
        f"{BORN} > preparing/OK/off > available/OK/off",
    ),
    "nobody said how to reach it": (
        ("offline", {"spec": {"bmc": None}, "first": True}, {"spec": {"bmc": BMC}}),
        "- > unmanaged/discovered/off > registering/discovered/off > " + MENDED.removesuffix(" > available/OK/on"),
    ),
    "provisioning fails, and is tried again by itself": (
        ("offline", {**PROVISION, **annotate("sandbox.hostler.dev/fail", "provisioning")},
         annotate("sandbox.hostler.dev/fail", None)),
        (f"{NEW} > provisioning/OK/off > provisioning/error/off/provisioning-error"
        " > deprovisioning/error/off/provisioning-error > deprovisioning/OK/off > available/OK/off"
        " > provisioning/OK/off > provisioned/OK/off > provisioned/OK/on"),
    ),
    "moved here with its status": (
        ({**PROVISION, **annotate("baremetalhost.metal3.io/status", json.dumps(RESTORED)), "first": True},),
        "- > provisioned/OK/on",
    ),
    "moved here with its status, paused until its Cluster goes on": (
        ({**PROVISION, "first": True, "metadata": {"annotations": MOVED}}, ("still", "-"), UNPAUSE),
        "- > provisioned/OK/on",
    ),
    "moved here without its status it is installed once more": (
        ({**PROVISION, "first": True},),
        f"{UP.removesuffix(' > provisioned/OK/on')} > provisioned/OK/on",
    ),
    "moved away while it was paused": (
        ("offline", PROVISION, PAUSE, *MOVED_AWAY),
        f"{UP} > deprovisioning/OK/on > {OFF_AND_GONE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_a_host_walks_as_expected(story: str) -> None:
    doings, expected = STORIES[story]
    world = World()
    body: Json = {
        "metadata": {"name": "h"},
        "spec": {"online": True, "bmc": {"address": "redfish://1/a", "credentialsName": "b"}},
    }
    world.set_secret(None if "no secret" in doings else "bad secret" not in doings)
    body["spec"]["online"] = "offline" not in doings
    for doing in doings:
        if isinstance(doing, dict) and doing.get("first"):
            _merge(body, {key: value for key, value in doing.items() if key != "first"})
    world.create(body)
    world.run(until=100)
    for doing in doings:
        match doing:
            case "offline" | "no secret" | "bad secret" | {"first": True}:
                continue
            case "delete":
                world.delete()
            case ("secret", complete):
                world.set_secret(complete)
            case ("still", token):
                assert token_of(world.host) == token
                continue
            case _:
                world.patch(doing)
        world.run(until=world.now + 100)
    assert " > ".join(world.tokens) == expected
    # A second look at a host at rest writes nothing.
    written = len(world.written)
    if world.host and not world.host["status"].get("errorType"):
        world.run(until=world.now + 1000)
        assert len(world.written) == written


# -- against recordings ------------------------------------------------------------------------------------------------

LEFT_OUT = ("lastUpdated", "lastAttemptedImage", "hardware")
RECORDED = sorted(path.name.removesuffix(".jsonl") for path in TRACES.glob("ironic-*.jsonl"))
# Where the recording's own timing decides: how long a step took there.
PACES = {
    "ironic-17-provisioning-error": replace(PACE, provisioning=15, deprovisioning=20, jitter=0.5),
    "ironic-07g-unreachable-bmc": replace(PACE, registering=2, error_minute=600),
}


def recorded_fault(name: str) -> Fault:
    """What was wrong in the recorded scenario: an address nobody answers at, an image that is not there."""

    def fault(host: Json, step: str, address: str) -> str:
        if step == "registering" and name.startswith(("ironic-07d", "ironic-07h")):
            return "no such system" if address != host["mended"] else ""
        if step == "registering" and name.startswith("ironic-07g"):
            return "nobody answers" if address != host["mended"] else ""
        if step == "provisioning" and "none.raw" in json.dumps(host["spec"].get("image")):
            return "no such image"
        return ""

    return fault


def normal(host: Json) -> Json:
    """What is compared of a host after a write: everything but times, ids, versions and the wording of errors."""
    status = copy.deepcopy(host.get("status") or {})
    for name in LEFT_OUT:
        status.pop(name, None)
    history = status.pop("operationHistory", {})
    status["history"] = sorted(f"{name} {part}" for name, one in history.items() for part in one if one[part])
    status["conditions"] = sorted(
        f"{one['type']}={one['status']}:{one['reason']}@{one['observedGeneration']}"
        for one in status.get("conditions", [])
        if one["type"] != "Healthy"
    )
    status["inspected"] = bool((host.get("status") or {}).get("hardware"))
    status["errorMessage"] = bool(status.get("errorMessage"))
    if status.get("provisioning"):
        status["provisioning"]["ID"] = bool(status["provisioning"]["ID"])
    for name in ("goodCredentials", "triedCredentials"):
        status[name] = bool(status.get(name))
    meta = host["metadata"]
    return {
        "status": status,
        "finalizers": meta.get("finalizers") or [],
        "annotations": sorted(meta.get("annotations") or {}),
        "generation": meta["generation"],
        "architecture": host["spec"].get("architecture"),
        "gone": bool(host.get("gone")),
    }


def changes(lines: Iterable[tuple[str, Json]]) -> list[Json]:
    """The writes that were not the client's and changed something that is compared."""
    found: list[Json] = []
    before: Json = {}
    for by, host in lines:
        now = normal(host)
        if by != "client" and now != before:
            found.append(now)
        before = now
    return found


def replay(name: str) -> World:
    """The recorded client's actions, at their times, on our simulator."""
    side = json.loads((TRACES / f"{name}.side.json").read_text())
    world = World(PACES.get(name, PACE), recorded_fault(name))
    mended = [a["body"]["spec"]["bmc"]["address"] for a in side["actions"] if a["action"].startswith("mend bmc")]
    before = 0.0
    for action in side["actions"]:
        if action["t"] - before > 0.05:  # else the client was quicker than anybody can react
            world.run(until=action["t"])
        before = action["t"]
        body = action.get("body") or {}
        if action["kind"] == "secrets":
            _secret(world, action, body)
        elif action["verb"] == "POST":
            world.create(body)
            world.host["mended"] = mended[0] if mended else ""
        elif action["verb"] == "DELETE":
            world.delete()
        else:
            world.patch(body)
    world.run(until=side["actions"][-1]["t"] + (250 if "07d" in name else 40))
    return world


def _secret(world: World, action: Json, body: Json) -> None:
    if "user" in action["action"]:
        return
    if action["verb"] == "DELETE":
        world.set_secret(True)  # its finalizer keeps it; only its version changes
    elif action["verb"] == "POST":
        world.set_secret("username" in body["keys"])
    elif "rewrite" in action["action"] or "mend" in action["action"]:
        world.set_secret(True)
    elif "finalizers" in action["action"]:
        world.set_secret(None)


@pytest.mark.skipif(not RECORDED, reason="the recordings are not here: 37 comparisons not made")
@pytest.mark.parametrize("name", RECORDED)
def test_it_writes_what_the_real_operator_wrote(name: str) -> None:
    lines = [json.loads(line) for line in (TRACES / f"{name}.jsonl").read_text().splitlines()]
    theirs = changes((line["by"], {**line, "gone": line["type"] == "DELETED"}) for line in lines)
    assert changes(replay(name).lines) == theirs

"""A new version goes on from what an older one wrote: its states on nodes, in mid-maintenance, and its Fleet objects.

tests/unit/upgrade/ holds what each released version wrote, and is only ever added to: a file that must be changed is a
broken upgrade. `python -m tests.unit.test_upgrade` writes that of today's version, once, before its release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hostler import __version__
from hostler.apis.fleet import (
    CapabilityStatus,
    ExpectedHost,
    FleetCounts,
    FleetSpec,
    FleetStatus,
    IngressPolicy,
    IngressWorkload,
    JoinPolicy,
    ObservedPause,
    PlatformPolicy,
    ScopedDaemonSet,
    ServingCertificates,
)
from hostler.host.conditions import Condition, Status
from hostler.install.crd import fleet_definition
from hostler.instant import iso
from hostler.kube.records import NodeSpec, Taint
from hostler.vsphere.records import Host, Task, Vm
from tests.unit.maintenance_world import NOW, Play, pair

FOLDER = Path(__file__).parent / "upgrade"
STEPS = [
    pytest.param(step, id=f"{path.stem.removeprefix('nodes-')}-{number}-{step['state'] or 'in service'}")
    for path in sorted(FOLDER.glob("nodes-*.json"))
    for number, step in enumerate(json.loads(path.read_text()))
]


def recorded(play: Play) -> dict[str, Any]:
    """The node and VM as they stand, as plain data."""
    node, vm = play.nodes["a"], play.vm("a")
    return {
        "state": play.state("a"),
        "annotations": dict(node.metadata.annotations),
        "unschedulable": node.spec.unschedulable,
        "taints": [{"key": one.key, "effect": one.effect} for one in node.spec.taints],
        "vm": {"host": vm.host, "power": vm.power, "tools": vm.tools},
        "after": play.now - NOW,
    }


def record() -> list[dict[str, Any]]:
    """Every state of a whole maintenance that the node was ever in."""
    play = pair()
    found: list[dict[str, Any]] = []
    play.enter("esx1")
    for _ in range(25):
        play.tick()
        one = recorded(play)
        if one["state"] and (not found or found[-1]["annotations"] != one["annotations"]):
            found.append(one)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_a_maintenance_goes_on_from_every_state_an_older_version_wrote(step: dict[str, Any]) -> None:
    play = pair()
    play.now = NOW + step["after"]
    play.enter("esx1")
    play.put(Vm, "vm-a", **step["vm"])
    if step["vm"]["power"] == "poweredOff" or step["vm"]["host"] != "host-esx1":
        play.put(Task, "task-esx1", state="success")
        play.put(Host, "host-esx1", in_maintenance=True)
    node = play.nodes["a"]
    play.nodes["a"] = msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(node.metadata, annotations=step["annotations"]),
        spec=NodeSpec(unschedulable=step["unschedulable"], taints=tuple(Taint(**one) for one in step["taints"])),
    )
    if step["state"] == "migrated":
        play.start("a")  # it has booted since
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx2"


def test_today_is_among_the_fixtures_and_writes_the_same_words() -> None:
    """Another word in an annotation is what an older version could not read after a downgrade."""
    kept = json.loads((FOLDER / f"nodes-{__version__}.json").read_text())
    assert [(one["state"], sorted(one["annotations"])) for one in kept] == [
        (one["state"], sorted(one["annotations"])) for one in record()
    ]


# -- the Fleet's schema


def narrowed(old: Any, new: Any, where: str) -> list[str]:
    """What an object that was valid could break: fields gone, types changed, more required, less allowed."""
    found: list[str] = []
    if not isinstance(old, dict) or not isinstance(new, dict):
        return found
    if old.get("type") != new.get("type"):
        found.append(f"{where}: {old.get('type')} became {new.get('type')}")
    for name, schema in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            found.append(f"{where}.{name} is gone")
        else:
            found += narrowed(schema, new["properties"][name], f"{where}.{name}")
    for part in ("items", "additionalProperties"):
        found += narrowed(old.get(part), new.get(part), f"{where}[]")
    more = set(new.get("required", ())) - set(old.get("required", ()))
    found += [f"{where}.{name} is required now" for name in sorted(more)]
    was = {str(word) for word in old.get("enum") or ()}
    less = was - {str(word) for word in new.get("enum") or was}
    found += [f"{where} may not be {word} any more" for word in sorted(less)]
    for limit in ("imum", "Length", "Items", "Properties"):
        for key, tighter in ((f"max{limit}", int.__lt__), (f"min{limit}", int.__gt__)):
            if key in new and (key not in old or tighter(new[key], old[key])):
                found.append(f"{where}: {key} is {new[key]} now")
    for key in ("pattern", "format", "x-kubernetes-list-map-keys"):
        if key in new and new[key] != old.get(key):
            found.append(f"{where}: {key} is {new[key]} now")
    kept = {one["rule"] for one in old.get("x-kubernetes-validations", ())}
    rules = [one["rule"] for one in new.get("x-kubernetes-validations", ())]
    found += [f"{where} must keep to {rule} now" for rule in rules if rule not in kept]
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("fleet-*.json")), ids=lambda path: path.stem)
def test_a_fleet_that_was_valid_stays_valid(path: Path) -> None:
    served = {one["name"]: one for one in fleet_definition()["spec"]["versions"]}
    for old in json.loads(path.read_text()):
        new = served[old["name"]]
        before, after = (one["schema"]["openAPIV3Schema"] for one in (old, new))
        assert narrowed(before, after, "Fleet") == []


def test_a_narrower_schema_is_noticed() -> None:
    old = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "integer"}}}
    tighter = {"type": "string", "enum": ["x"], "maxLength": 3, "pattern": "x+",
               "x-kubernetes-validations": [{"rule": "self > ''"}]}  # fmt: skip
    new = {"type": "object", "properties": {"a": tighter}, "required": ["a"]}
    assert len(narrowed(old, new, "F")) == 6


# -- Fleet objects


def a_fleet() -> dict[str, Any]:
    """One with every field in it."""
    nginx = IngressWorkload(
        "Deployment", "ingress", "nginx", placement="Workers", node_selector={"edge": "true"}, replicas=2
    )
    csi = ScopedDaemonSet("csi", "driver", {"app": "csi"}, "nutanix", "platform", "In", ("a", "b"))
    host = ExpectedHost("w1", iso(NOW), iso(NOW + 60), ("192.0.2.1",), "ada")
    spec = FleetSpec(
        max_unavailable="10%",
        ingress=IngressPolicy("edge", {"spec": {"containers": []}}, ("192.0.2.2",), (nginx,)),
        join=JoinPolicy((host,), ServingCertificates(("w[0-9]+",), ("192.0.2.0/24",), 90)),
        platform=PlatformPolicy((csi,)),
    )  # fmt: skip
    said = Condition(type="Ready", status=Status.TRUE, reason="Well", message="All is well.",
                     last_transition_time=iso(NOW), observed_generation=3)  # fmt: skip
    status = FleetStatus(
        3, "pod-1", "0.1.0", FleetCounts(5, 4, 3, 2), (CapabilityStatus("metal", True, True, "why", "capm3"),), (said,),
        (ObservedPause("ada-1", "u1", "ada", "fire"),),
    )  # fmt: skip
    return {"spec": plain(spec), "status": plain(status)}


def plain(record: Any) -> Any:
    return json.loads(msgspec.json.encode(record))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("object-*.json")), ids=lambda path: path.stem)
def test_a_fleet_that_was_written_is_read_as_it_was_meant(path: Path) -> None:
    kept = json.loads(path.read_text())
    assert plain(msgspec.convert(kept["spec"], FleetSpec)) == kept["spec"]
    assert plain(msgspec.convert(kept["status"], FleetStatus)) == kept["status"]


def test_today_s_fleet_is_kept_with_every_field() -> None:
    kept = json.loads((FOLDER / f"object-{__version__}.json").read_text())
    assert kept == a_fleet()
    schema = fleet_definition()["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        assert set(paths(schema[part])) == set(named(kept[part], schema[part]))


def paths(schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """The fields of the schema; what is below an open one is the API of others."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in schema.get("properties", {}).items():
        yield f"{where}.{name}"
        yield from paths(inner, f"{where}.{name}")
    yield from paths(schema["items"], f"{where}[]") if "items" in schema else ()


def named(value: Any, schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """The fields of the schema that an object has."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            yield f"{where}.{name}"
            yield from named(value[name], inner, f"{where}.{name}")
    for one in value if isinstance(value, list | tuple) else ():
        yield from named(one, schema["items"], f"{where}[]")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"nodes-{__version__}.json").write_text(json.dumps(record(), indent=1) + "\n")
    versions = fleet_definition()["spec"]["versions"]
    (FOLDER / f"fleet-{__version__}.json").write_text(json.dumps(versions, indent=1) + "\n")
    (FOLDER / f"object-{__version__}.json").write_text(json.dumps(a_fleet(), indent=1) + "\n")

"""Which nodes a pass looks at: after any changes the same ones as if everything were looked through."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.host.facts import Unknown
from hostler.host.holds import HOLDS
from hostler.kube.records import Metadata
from hostler.maintenance.identities import CONFIG_MAP_NAME, ConfigMap, Found, Identities, key_of
from hostler.maintenance.model import STATE, Mark, Marked
from hostler.maintenance.observe import Observer
from hostler.vsphere.decode import Change
from hostler.vsphere.records import ENTER_MAINTENANCE, Fields, Host, Task, Vm
from hostler.vsphere.session import Link, Standing
from tests.sizes import examples
from tests.unit.maintenance_yard import LABEL, NOW, UUIDS, Yard

HOSTS, NODES, KEY = ("h1", "h2"), ("a", "b", "c"), 7
HELD = '[{"holder":"maintenance","why":"w","since":"","cordonedBefore":false}]'
MARK = Mark("a", "h1", "", Marked.STOPPED, cluster="me").text()
VERSIONS = count(1)
CHANGES: dict[str, Any] = {
    "node": (st.sampled_from(NODES), st.booleans(), st.sampled_from(("", "state", "hold")), st.sampled_from((0, 1, 2))),
    "node gone": (st.sampled_from(NODES),),
    "vm": (st.sampled_from(NODES), st.sampled_from(HOSTS), st.sampled_from(("poweredOn", "poweredOff"))),
    "twin": (st.sampled_from(NODES), st.booleans()),
    "vm gone": (st.sampled_from(NODES),),
    "mark": (st.sampled_from(NODES), st.booleans()),
    "line": (st.sampled_from(NODES), st.booleans()),
    "host": (st.sampled_from(HOSTS), st.sampled_from(("connected", "notResponding")), st.booleans()),
    "enter": (st.sampled_from(HOSTS), st.sampled_from(("running", "success", "gone"))),
    "vCenter": (st.booleans(),),
    "look": (),
}
STEP = st.sampled_from([*CHANGES, "enter"]).flatmap(lambda what: st.tuples(st.just(what), *CHANGES[what]))
STEPS = st.lists(STEP, min_size=1, max_size=12)
AT_REST = [step for uuid, name in enumerate(NODES) for step in
           (("vm", name, HOSTS[uuid % 2], "poweredOn"), ("node", name, True, "", uuid))]  # fmt: skip


def change(yard: Yard, what: str, *how: Any) -> None:
    match what, how:
        case "node", (name, labelled, extra, uuid):
            notes = {"state": {STATE: "draining"}, "hold": {HOLDS: HELD}}.get(extra, {})
            yard.node(name, UUIDS[uuid], labelled=labelled, annotations=notes)
        case "node gone", (name,):
            if (node := yard.nodes.store.get(name)) is not None:
                yard.nodes.store.remove(node)
        case "vm", (name, host, power):
            yard.put(Vm, f"vm-{name}", name=name, uuid=UUIDS[NODES.index(name)], host=host, power=power,
                     connection="connected", datastores=("ds",))  # fmt: skip
        case "twin", (name, there):
            fields = {"name": "twin", "uuid": UUIDS[NODES.index(name)], "host": "h1"} if there else None
            yard.push("vc", Change(Vm, "vm-twin", fields))
        case "vm gone", (name,):
            yard.push("vc", Change(Vm, f"vm-{name}", None))
        case "mark", (name, on):
            yard.put(Vm, f"vm-{name}", attributes=((KEY, MARK),) if on else ())
        case "line", (name, on):
            version = str(next(VERSIONS))
            about = Metadata(name=CONFIG_MAP_NAME, namespace="hostler", uid="c", resource_version=version)
            yard.config.store.put(ConfigMap(about, {key_of("vc", f"vm-{name}"): MARK} if on else {}))
        case "host", (host, connection, away):
            yard.put(Host, host, connection=connection, in_maintenance=away)
        case "enter", (host, "gone"):
            yard.push("vc", Change(Task, f"task-{host}", None))
        case "enter", (host, state):
            yard.put(Task, f"task-{host}", kind=ENTER_MAINTENANCE, state=state, entity=host)
        case "vCenter", (on,):
            yard.vcenters["vc"]._stand(Link(Standing.CONNECTED if on else Standing.UNREACHABLE, "it says so", NOW))
        case _:
            yard.seen()


def looked_at(observer: Observer) -> set[str]:
    return {subject.name for subject in observer.world(NOW).subjects}


@pytest.mark.parametrize("named", [False, True], ids=["without the cluster's name", "with it"])
@given(STEPS)
@settings(max_examples=examples(400))
def test_after_any_changes_nobody_is_missed(named: bool, steps: list[tuple[Any, ...]]) -> None:
    yard = Yard()
    if named:
        yard.identities.name_cluster("me")
    yard.put(Fields, "CustomFieldsManager", names=((KEY, "hostler"),))
    for host in HOSTS:
        yard.host(host)
    for what, *how in [*AT_REST, ("look",), *steps]:
        change(yard, what, *how)
    assert_nobody_missed(yard)


def assert_nobody_missed(yard: Yard) -> None:
    """An observer that knows nothing from before has to look at everything."""
    identities = Identities(yard.nodes, yard.vcenters, yard.observer.marks)
    identities.name_cluster(yard.identities.cluster)
    afresh = Observer(identities, yard.sources, yard.memory, LABEL, yard.observer._room)
    assert looked_at(yard.observer) == looked_at(afresh)
    assert yard.observer.managed_vms("vc") == afresh.managed_vms("vc")
    managed = {node.metadata.name for node in yard.nodes.store if afresh.is_managed(node)}
    assert yard.observer.attention.managed == managed


def test_a_node_at_rest_is_not_looked_at_again() -> None:
    yard = Yard()
    yard.host()
    for number, name in enumerate(NODES):
        yard.vm(name, UUIDS[number])
        yard.node(name, UUIDS[number])
    assert yard.seen() == []
    asked: list[str] = []
    of = yard.identities.of

    def noted(name: str) -> Found | Unknown:
        asked.append(name)
        return of(name)

    yard.identities.of = noted  # type: ignore[method-assign]
    yard.put(Vm, f"vm-a-{UUIDS[0][-1:]}", tools="guestToolsRunning")
    yard.seen()
    assert asked == ["a"]

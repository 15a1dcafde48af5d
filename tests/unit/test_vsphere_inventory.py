"""The inventory: what a batch does to it, who is found by what, and a listing that takes the old one's place."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hostler.host.facts import Unknown
from hostler.vsphere.decode import Change
from hostler.vsphere.inventory import Batch, Inventory
from hostler.vsphere.records import ENTER_MAINTENANCE, Cluster, Fields, Host, Record, Task, Unread, Vm

UUID, SWAPPED = "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001", "b5e40642-3a0d-0f1d-86a1-2c1b6d9a0001"


def says(kind: type[Record], moref: str, /, **fields: Any) -> Change:
    return Change(kind, moref, fields)


def filled(*changes: Change) -> Inventory:
    inventory = Inventory()
    inventory.apply(Batch(changes, 1.0, began=True))
    inventory.apply(Batch((), 1.0, complete=True))
    return inventory


def test_nothing_is_seen_before_the_listing_is_whole() -> None:
    inventory = Inventory()
    assert inventory.apply(Batch((says(Vm, "vm-1", name="a"),), 1.0, began=True)) == frozenset()
    assert (inventory.complete, len(inventory)) == (False, 0)
    assert inventory.apply(Batch((), 2.0, complete=True)) == {"vm-1"}
    assert (inventory.complete, len(inventory)) == (True, 1)


def test_a_new_listing_removes_what_it_does_not_name_and_says_what_differs() -> None:
    inventory = filled(says(Vm, "vm-1", name="a"), says(Vm, "vm-2", name="b"), says(Vm, "vm-3", name="c"))
    again = (says(Vm, "vm-1", name="a"), says(Vm, "vm-2", name="other"), says(Vm, "vm-4", name="d"))
    inventory.apply(Batch(again, 2.0, began=True, missing=(("vm-9", "our user may not do this"),)))
    assert {vm.moref for vm in inventory.vms()} == {"vm-1", "vm-2", "vm-3"}, "the old one until the end"
    assert inventory.apply(Batch((), 2.0, complete=True)) == {"vm-2", "vm-3", "vm-4"}
    assert (inventory.vms_named("b"), inventory.vms_named("c")) == ([], [])
    assert inventory.missing == {"vm-9": "our user may not do this"}


def test_a_vm_is_found_by_name_host_and_either_byte_order_and_nothing_is_guessed() -> None:
    inventory = filled(
        says(Vm, "vm-1", name="a", uuid=UUID, host="host-1"),
        says(Vm, "vm-2", name="a", uuid=SWAPPED, host="host-1"),
        says(Vm, "vm-3", name="c", instance_uuid=UUID, host="host-2"),
        says(Vm, "vm-4", name="d", uuid="00000000-0000-0000-0000-000000000000"),
    )
    assert [vm.moref for vm in inventory.vms_with_uuid(UUID)] == ["vm-1", "vm-2", "vm-3"]
    assert [vm.moref for vm in inventory.vms_named("a")] == ["vm-1", "vm-2"]
    assert inventory.vms_with_uuid("00000000-0000-0000-0000-000000000000") == []
    inventory.apply(Batch((says(Vm, "vm-1", host="host-2"),), 2.0))
    assert [vm.moref for vm in inventory.vms_on("host-2")] == ["vm-1", "vm-3"]
    assert [vm.moref for vm in inventory.vms_on("host-1")] == ["vm-2"]
    assert inventory.apply(Batch((says(Vm, "vm-1", host="host-2"),), 2.0)) == frozenset(), "nothing new"


def test_entering_counts_queued_and_running_tasks_that_nobody_cancelled() -> None:
    def task(moref: str, state: str, entity: str = "host-1", kind: str = ENTER_MAINTENANCE, **more: Any) -> Change:
        return says(Task, moref, state=state, entity=entity, kind=kind, **more)

    inventory = filled(
        says(Host, "host-1", name="esx1"),
        task("task-1", "running", started=50.0),
        task("task-2", "queued", queued=60.0),
        task("task-3", "error"),
        task("task-4", "running", cancelled=True),
        task("task-5", "running", kind="HostSystem.exitMaintenanceMode"),
        task("task-6", "running", entity="host-2", cancelled=True),
    )
    found = inventory.entering("host-1")
    assert found is not None
    assert (found.tasks, found.since) == (("task-1", "task-2"), 50.0)
    assert inventory.entering("host-2") is None
    inventory.apply(Batch((Change(Task, "task-1", None), says(Task, "task-2", state="success")), 2.0))
    assert inventory.entering("host-1") is None


def test_what_vcenter_did_not_say_is_unknown() -> None:
    assert isinstance(Host("host-1").in_maintenance, Unknown)
    assert isinstance(Vm("vm-1").devices, Unknown)
    assert isinstance(Cluster("c").drs("vm-1"), Unknown)
    assert Vm("vm-1").power == "", "neither on nor off"


def test_drs_of_one_vm() -> None:
    cluster = Cluster(
        "c", "c", True, "fullyAutomated", True, (("vm-1", False, ""), ("vm-2", True, "manual"), ("vm-3", True, ""))
    )
    assert [cluster.drs(f"vm-{n}") for n in (1, 2, 3, 4)] == ["off", "manual", "fullyAutomated", "fullyAutomated"]
    firm = Cluster("c", "c", True, "fullyAutomated", False, (("vm-2", True, "manual"),))
    assert firm.drs("vm-2") == "fullyAutomated", "overrides are switched off"
    assert Cluster("c", "c", False, "fullyAutomated").drs("vm-2") == "off"


def test_custom_attributes_are_found_by_name() -> None:
    inventory = filled(
        says(Fields, "CustomFieldsManager", names=((7, "hostler"),)), says(Vm, "vm-1", attributes=((7, "why"),))
    )
    (vm,) = inventory.vms()
    assert (inventory.attribute(vm, "hostler"), inventory.attribute(vm, "other")) == ("why", "")


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.integers(0, 2))))
def test_the_indexes_agree_with_the_records(steps: list[tuple[int, str | None, int]]) -> None:
    """However VMs come, move and go, whoever asks by name or host gets what a look at every record gives."""
    inventory = filled()
    for number, name, host in steps:
        fields = None if name is None else {"name": name, "host": f"host-{host}"}
        inventory.apply(Batch((Change(Vm, f"vm-{number}", fields),), 1.0))
    everyone = sorted(inventory.vms(), key=lambda vm: vm.moref)
    for name in ("a", "b"):
        assert inventory.vms_named(name) == [vm for vm in everyone if vm.name == name]
    for host in range(3):
        assert inventory.vms_on(f"host-{host}") == [vm for vm in everyone if vm.host == f"host-{host}"]


def test_what_was_refused_is_named_until_it_is_told() -> None:
    inventory = filled(
        Change(Vm, "vm-1", {"name": "a"}, (Unread("runtime.host", "no"), Unread("runtime.powerState", "no")), ("name",))
    )
    (vm,) = inventory.vms()
    assert vm.unread == (Unread("runtime.host", "no"), Unread("runtime.powerState", "no"))
    inventory.apply(Batch((Change(Vm, "vm-1", {"host": "host-1"}, (), ("runtime.host",)),), 2.0))
    (vm,) = inventory.vms()
    assert (vm.host, vm.unread) == ("host-1", (Unread("runtime.powerState", "no"),))


def test_sentences_name_objects_as_people_do() -> None:
    inventory = Inventory()
    inventory.apply(Batch((Change(Vm, "vm-39", {"name": "gpu-1"}),), 0.0))
    said = inventory.with_names("powering on vm-39 was refused: NoPermission on vm-40 of node gpu-2.")
    assert said == "powering on gpu-1 was refused: NoPermission on vm-40 of node gpu-2."

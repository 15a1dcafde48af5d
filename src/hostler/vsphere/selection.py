"""What the watcher asks the server to push: two filters on a property collector of our own.

`everything` is light and covers all hosts, VMs, clusters and recent tasks. `devices` is heavy and covers only hosts
that offer devices, the VMs on them, and VMs somebody asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hostler.vsphere.decode import CLUSTER, DATASTORE, FIELDS, HEAVY_HOST, HEAVY_VM, HOST, PLACE, TASK, VM
from hostler.vsphere.session import Session
from hostler.vsphere.vmomi import PropertyCollector as PC
from hostler.vsphere.vmomi import Stub, vim

# The kinds in the one container view; tasks are found through the hosts and VMs they are of.
VIEWED = (vim.HostSystem, vim.VirtualMachine, vim.ComputeResource, vim.Datastore, vim.Network)


def view(session: Session, kinds: Iterable[Any] = VIEWED) -> Any:
    """A container view over the whole inventory. The server allows few per session: destroy it."""
    content = session.content
    manager = vim.view.ViewManager(content.viewManager._moId, session.calls)
    return manager.CreateContainerView(content.rootFolder, list(kinds), True)


def everything(of: Any, session: Session) -> Any:
    tasks = [_walk(f"tasks of {kind.__name__}", kind, "recentTask") for kind in (vim.HostSystem, vim.VirtualMachine)]
    wanted = {
        vim.HostSystem: HOST,
        vim.VirtualMachine: VM,
        vim.Task: TASK,
        vim.ComputeResource: CLUSTER,
        vim.Datastore: DATASTORE,
        vim.Network: PLACE,
        vim.CustomFieldsManager: FIELDS,
    }
    objects = [PC.ObjectSpec(obj=of, skip=True, selectSet=[_walk("view", vim.view.ContainerView, "view", tasks)])]
    if session.content.customFieldsManager is not None:
        objects.append(PC.ObjectSpec(obj=session.content.customFieldsManager))
    return _spec(objects, wanted)


def devices(hosts: Iterable[str], vms: Iterable[str], stub: Stub) -> Any:
    walk = [_walk("vms", vim.HostSystem, "vm")]
    objects = [PC.ObjectSpec(obj=vim.HostSystem(host, stub), selectSet=walk) for host in sorted(hosts)]
    objects += [PC.ObjectSpec(obj=vim.VirtualMachine(vm, stub)) for vm in sorted(vms)]
    return _spec(objects, {vim.HostSystem: HEAVY_HOST, vim.VirtualMachine: HEAVY_VM})


def of_tasks(hosts: Iterable[str], vms: Iterable[str], stub: Stub, wanted: Mapping[Any, Iterable[str]]) -> Any:
    """Some properties of named hosts and VMs, and of the recent tasks of each."""
    objects = [
        PC.ObjectSpec(obj=kind(one, stub), selectSet=[_walk("tasks", kind, "recentTask")])
        for kind, ids in ((vim.HostSystem, hosts), (vim.VirtualMachine, vms))
        for one in sorted(ids)
    ]
    return _spec(objects, {kind: dict.fromkeys(paths, ()) for kind, paths in wanted.items()})


def of_objects(objects: Iterable[Any], kind: Any, paths: Iterable[str]) -> Any:
    """Some properties of named objects, in one call however many they are."""
    return _spec([PC.ObjectSpec(obj=one) for one in objects], {kind: dict.fromkeys(paths, ())})


def of_view(of: Any, wanted: Mapping[Any, Iterable[str]]) -> Any:
    """Some properties of everything in a view."""
    walk = _walk("view", vim.view.ContainerView, "view")
    paths = {kind: dict.fromkeys(paths, ()) for kind, paths in wanted.items()}
    return _spec([PC.ObjectSpec(obj=of, skip=True, selectSet=[walk])], paths)


def _walk(name: str, kind: Any, path: str, then: Iterable[Any] = ()) -> Any:
    return PC.TraversalSpec(name=name, type=kind, path=path, skip=False, selectSet=list(then))


def _spec(objects: list[Any], wanted: Mapping[Any, Mapping[str, Any]]) -> Any:
    return PC.FilterSpec(
        objectSet=objects,
        propSet=[PC.PropertySpec(type=kind, pathSet=list(paths)) for kind, paths in wanted.items()],
        # An object that goes away between two calls, or that we may not see, is reported and not a fault of the whole.
        reportMissingObjectsInResults=True,
    )

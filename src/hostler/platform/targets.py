"""Which DaemonSets belong only on nodes of one platform: those the Fleet names, by name or by label. Pure.

Of two entries that choose the same DaemonSet the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hostler.apis.fleet import PlatformPolicy, ScopedDaemonSet
from hostler.kube.records import Metadata, key_of

# The vSphere CSI node DaemonSet as OpenShift names it, and as upstream does.
OPENSHIFT_DRIVER = ScopedDaemonSet(namespace="openshift-cluster-csi-drivers", name="vmware-vsphere-csi-driver-node")
DEFAULT_TARGETS = (OPENSHIFT_DRIVER, ScopedDaemonSet(namespace="vmware-system-csi", name="vsphere-csi-node"))


def targets_of(policy: PlatformPolicy) -> tuple[ScopedDaemonSet, ...]:
    """What the Fleet names; the vSphere CSI driver where it names nothing. An empty list names none."""
    return DEFAULT_TARGETS if policy.daemon_sets is None else policy.daemon_sets


def chooses(entry: ScopedDaemonSet, about: Metadata) -> bool:
    """Whether an entry is about this DaemonSet. Without a namespace it is about those of every namespace."""
    if entry.namespace and entry.namespace != about.namespace:
        return False
    if entry.labels:
        return entry.labels.items() <= about.labels.items()
    return bool(entry.name) and entry.name == about.name


def resolve(entries: Sequence[ScopedDaemonSet], there: Iterable[Metadata]) -> list[ScopedDaemonSet]:
    """One target per DaemonSet, with its namespace and name; an entry that chooses none that is there stays itself."""
    found: dict[str, tuple[int, ScopedDaemonSet]] = {}
    for about in there:
        for number, entry in enumerate(entries):
            if chooses(entry, about):
                named = msgspec.structs.replace(entry, namespace=about.namespace, name=about.name, labels={})
                found[key_of(about)] = (number, named)
                break
    chosen = {number for number, _ in found.values()}
    absent = [(number, entry) for number, entry in enumerate(entries) if number not in chosen]
    made: dict[str, tuple[int, ScopedDaemonSet]] = {}
    for number, target in (*found.values(), *absent):
        made.setdefault(key_of_target(target), (number, target))  # a later entry of the same one does not count
    return [target for _, target in sorted(made.values(), key=lambda one: (one[0], key_of_target(one[1])))]


def key_of_target(target: ScopedDaemonSet) -> str:
    """`NAMESPACE/NAME`; of an entry by label that chose none yet, `NAMESPACE/KEY=VALUE`, with * for any namespace."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(target.labels.items()))
    return f"{target.namespace or '*'}/{target.name or labels}"

"""What a VM itself says in vCenter while we keep it: a sentence for its administrator that we can read again. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Marked(StrEnum):
    DRAINING = "draining"
    STOPPED = "stopped"
    ASKED = "asked"  # its guest was asked to shut down, then the maintenance was cancelled: it may still go off


_MARK = re.compile(
    r"\(node=(\S+) host=(.+?) id=(\S+) since=(\S+) policy=(\S+) cluster=(\S+) (draining|stopped|asked)\)$"
)
NO_CLUSTER: Final = "-"
NO_HOST: Final = "-"
_DOING = {
    Marked.DRAINING: "is emptying this VM's node",
    Marked.STOPPED: "stopped this VM and starts it again",
    Marked.ASKED: "asked this VM to stop, and starts it again if it does",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The attribute `hostler` of a VM, or a ConfigMap's line in its place."""

    node: str
    host: str
    since: str
    what: Marked
    policy: str = "migrate"
    # Which Kubernetes cluster's it is: one vCenter serves many, each with an operator of its own.
    cluster: str = NO_CLUSTER
    # The managed object id of its own host. An attribute is short, so the rest of its origin is on the node alone.
    host_id: str = NO_HOST

    def text(self) -> str:
        """A sentence for the vSphere administrator, which `read_mark` understands again."""
        host = f"host={self.host} id={self.host_id}"
        whose = f"node={self.node} {host} since={self.since} policy={self.policy} cluster={self.cluster}"
        return f"Hostler {_DOING[self.what]}: its ESXi host goes into maintenance ({whose} {self.what})"


def read_mark(text: str) -> Mark | None:
    """None where there is none, or where it is somebody else's text."""
    found = _MARK.search(text.strip())
    if found is None:
        return None
    node, host, host_id, since, policy, cluster, what = found.groups()
    return Mark(node, host, since, Marked(what), policy, cluster, host_id)

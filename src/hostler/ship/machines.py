"""Every state machine there is, as arrows; docs/ is drawn from them (`diagrams`).

Maintenance and reclaim keep a state and have tables of their own. The others keep none: what they say is derived anew
with each look, in the words that are named here. tests/unit/test_ship_machines.py compares these with the code.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostler.ingress import conditions as ingress
from hostler.join.model import Act
from hostler.maintenance import model as maintenance
from hostler.metal.model import FAILED as NO_HOST
from hostler.metal.remediation import model as remediation
from hostler.platform.model import State as Scoped
from hostler.reclaim import model as reclaim

IN_SERVICE = "in service"  # what a node without a state of maintenance is
NEW = "new"  # what a remediation without a phase is


@dataclass(frozen=True, slots=True)
class Arrow:
    """One transition: by its name, from any of these states to that one."""

    name: str
    sources: tuple[str, ...]
    target: str
    when: str


Machine = tuple[Arrow, ...]

MAINTENANCE: Machine = tuple(
    Arrow(transition.event, (transition.before or IN_SERVICE,), transition.after or IN_SERVICE, transition.when)
    for transition in maintenance.TRANSITIONS
)
RECLAIM: Machine = tuple(
    Arrow(transition.name, transition.sources, transition.target, transition.when) for transition in reclaim.TRANSITIONS
)

# The reasons of the condition Ready of a Metal3Machine.
_OWNER, _CLUSTER, _INFRASTRUCTURE, _BOOTSTRAP = (
    "WaitingForMetal3MachineOwnerRef", "WaitingForCluster", "WaitingForClusterInfrastructureReady",
    "WaitingForBootstrapReady",
)  # fmt: skip
_SPEC, _SELECTOR, _UNDER_WAY, _READY = "InvalidSpec", "InvalidHostSelector", "NotProvisioned", "Provisioned"
_WITHOUT_HOST = (_BOOTSTRAP, _SPEC, _SELECTOR)
_WITH_HOST = (_UNDER_WAY, _READY)
METAL: Machine = (
    Arrow("owned", (_OWNER,), _CLUSTER, "a Machine owns it"),
    Arrow("named", (_CLUSTER,), _INFRASTRUCTURE, "its Cluster is there"),
    Arrow("prepared", (_INFRASTRUCTURE,), _BOOTSTRAP, "the infrastructure of its Cluster is ready"),
    Arrow("wrong", (_BOOTSTRAP,), _SPEC, "nothing can be installed by what its spec says"),
    Arrow("wrong", (_BOOTSTRAP, _SPEC), _SELECTOR, "its hostSelector cannot be read"),
    Arrow("none free", _WITHOUT_HOST, NO_HOST, "no free host suits it"),
    Arrow("claimed", (*_WITHOUT_HOST, NO_HOST), _UNDER_WAY, "a host is its own, and is prepared and provisioned"),
    Arrow("node found", (_UNDER_WAY,), _READY, "the host is provisioned, and its node is there"),
    Arrow("emptied", (_READY,), _UNDER_WAY, "the host is not provisioned any more"),
    Arrow("lost", _WITH_HOST, "HostLost", "it was a node, and its host is gone or another's: delete the Machine"),
    Arrow("unreadable", (_UNDER_WAY,), "HostUnreadable", "the host's object cannot be read; nothing is done"),
    Arrow("readable", ("HostUnreadable",), _UNDER_WAY, "it can be read again"),
    Arrow("refused", (NO_HOST, _UNDER_WAY), "Refused", "the API server does not take what it asks for"),
    Arrow("mended", ("Refused",), _UNDER_WAY, "the machine was changed, or five minutes are over"),
    Arrow("deleted", _WITH_HOST, "Deleting", "the host is emptied and handed back, then the machine goes"),
)
REMEDIATION: Machine = (
    Arrow("begun", (NEW,), remediation.RUNNING, "it has its machine and host, and nobody holds the host"),
    Arrow(
        "PoweringOn", (remediation.RUNNING,), remediation.WAITING,
        "the host is off, and its node empty or half of the time over",
    ),
    Arrow(
        "Retrying", (remediation.RUNNING, remediation.WAITING), remediation.RUNNING,
        "the time is over, the node is not Ready, and a retry is left",
    ),
    Arrow(
        remediation.HOST_UNHEALTHY, (remediation.RUNNING, remediation.WAITING), remediation.GIVEN_UP,
        "the same, and no retry is left",
    ),
    Arrow(
        "NotRemediated", (NEW, remediation.RUNNING, remediation.WAITING), remediation.FAILED,
        "somebody switched the host off",
    ),
)  # fmt: skip

JOIN: Machine = (
    Arrow("known", (Act.WAIT,), Act.APPROVE, "what was missing is known, and every rule holds"),
    Arrow("known", (Act.WAIT,), Act.LEAVE, "what was missing is known, and a rule does not hold"),
    Arrow("expected", (Act.LEAVE,), Act.APPROVE, "every rule holds now: the host is expected, or the flood is over"),
    Arrow("contested", (Act.APPROVE,), Act.LEAVE, "another request for the same node would be approved too"),
    Arrow("unknown", (Act.LEAVE, Act.APPROVE), Act.WAIT, "a fact is not known any more: a cache is not in step"),
    Arrow("decided", (Act.APPROVE,), Act.DONE, "Hostler approved it"),
    Arrow("decided", (Act.WAIT, Act.LEAVE, Act.IGNORE), Act.DONE, "another approver approved or denied it"),
)

_THERE = (Scoped.IN_PLACE, Scoped.WRITE, Scoped.HELD_BACK, Scoped.FIGHT)
PLATFORM: Machine = (
    Arrow("made", (Scoped.ABSENT,), Scoped.WRITE, "it is there, without the rule"),
    Arrow("written", (Scoped.WRITE,), Scoped.IN_PLACE, "the rule is in it, by the policy or by us"),
    Arrow("undone", (Scoped.IN_PLACE,), Scoped.WRITE, "another controller took the rule away"),
    Arrow("undone too often", (Scoped.IN_PLACE,), Scoped.FIGHT, "another controller takes it away again and again"),
    Arrow("calm", (Scoped.FIGHT,), Scoped.WRITE, "it was not taken away for some minutes"),
    Arrow(
        "would be lost", (Scoped.ABSENT, Scoped.WRITE, Scoped.IN_PLACE, Scoped.FIGHT), Scoped.HELD_BACK,
        "the rule is not there and would take it from nodes it belongs on, or from every node, or is none the API "
        "server would take",
    ),
    Arrow("mended", (Scoped.HELD_BACK,), Scoped.WRITE, "nodes have the label, or the rule is a sound one"),
    Arrow("deleted", _THERE, Scoped.ABSENT, "there is no such DaemonSet any more"),
    Arrow("unreadable", (Scoped.ABSENT, *_THERE), Scoped.UNREADABLE, "its object cannot be read; nothing is done"),
    Arrow("readable", (Scoped.UNREADABLE,), Scoped.WRITE, "it can be read again"),
)  # fmt: skip

# What makes an IngressController's conditions out of others.
INGRESS: Machine = (
    Arrow("both", (ingress.ADMITTED, ingress.DEPLOYMENT), ingress.AVAILABLE, "True if both are True, else False"),
    Arrow("the same as", (ingress.ROLLING_OUT,), ingress.PROGRESSING, "always"),
    Arrow("at once", (ingress.ADMITTED,), ingress.DEGRADED, "its fields cannot be turned into a router"),
    *(
        Arrow(f"after {seconds:.0f} s", (type,), ingress.DEGRADED, f"it is not True for more than {seconds:.0f} s")
        for type, seconds in ingress.GRACE.items()
    ),
)

# The machines of a page, in the order of their places on it.
MACHINES: dict[str, tuple[Machine, ...]] = {
    "docs/ingress.md": (INGRESS,),
    "docs/join.md": (JOIN,),
    "docs/maintenance.md": (MAINTENANCE,),
    "docs/metal.md": (METAL, REMEDIATION),
    "docs/platform.md": (PLATFORM,),
    "docs/reclaim.md": (RECLAIM,),
}

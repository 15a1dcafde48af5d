"""Our own API: Fleet (what a cluster's owner decides once, and Hostler's status) and Pause (the stop button). Pure.

The CRDs are generated from these types by `install.crd`. A field here is a field of the API: its description is what
`kubectl explain fleet` prints. Rooms add their own fields; everything works without a Fleet, on defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, field

from hostler.apis.pod_security import template_schema
from hostler.host.conditions import Condition
from hostler.kube.records import Metadata, Record

REASON_LIMIT, WHO_LIMIT = 1024, 253  # characters
PAUSES_SHOWN, SHOWN_REASON_LIMIT = 64, 256  # in the status: how many pauses, and how much of each reason
NAME = "cluster"  # there is one Fleet per cluster, and this is its name


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule the API server checks on every write, and what it says when the rule is broken."""

    cel: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What the API server enforces of one field; see `doc`."""

    least: int | None = None
    most: int | None = None
    max_length: int | None = None
    pattern: str = ""
    rules: tuple[Rule, ...] = ()
    keys: tuple[str, ...] = ()
    defaulted: bool = False
    format: str = ""
    schema: Callable[[], dict[str, Any]] | None = None


def doc(
    description: str,
    *,
    least: int | None = None,
    max_length: int | None = None,
    pattern: str = "",
    rules: tuple[Rule, ...] = (),
    keys: tuple[str, ...] = (),
    most: int | None = None,
    defaulted: bool = False,
    format: str = "",
    schema: Callable[[], dict[str, Any]] | None = None,
) -> Meta:
    """A field's description and limits, for the API server to enforce and not for our decoder.

    An object that breaks a limit (written under an older CRD) must stay readable: it carries the owner's decisions.
    `most` bounds a number, or the length of a list or map; `keys` makes a list a map by these fields; `defaulted` lets
    the API server fill the Python default in, so that it shows in the stored object. `schema` makes the whole schema of
    a field that has no record of ours.
    """
    limits = Limits(least, most, max_length, pattern, rules, keys, defaulted, format, schema)
    return Meta(description=description, extra={"limits": limits})


NUMBER_OR_PERCENT = Rule(
    "type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",
    "must be a whole number (3) or a percentage (50%)",
)


class IngressWorkload(Record, frozen=True, omit_defaults=True):
    """One ingress that is no OpenShift router, and where it runs."""

    kind: Annotated[str, doc("Deployment or DaemonSet.", pattern="^(Deployment|DaemonSet)$")]
    namespace: Annotated[str, doc("Its namespace.", least=1, max_length=63)]
    name: Annotated[str, doc("Its name.", least=1, max_length=253)]
    placement: Annotated[
        str,
        doc("ControlPlane pins it to the control-plane nodes, Workers keeps it off them.", defaulted=True,
            pattern="^(ControlPlane|Workers)$"),
    ] = "ControlPlane"  # fmt: skip
    node_selector: Annotated[
        dict[str, str], doc("Labels of the nodes it runs on, in place of the default of its placement.", most=32)
    ] = field(default_factory=dict)
    replicas: Annotated[
        int | None, doc("How many pods a Deployment has. Unset: as many as it has now.", least=0, most=1000)
    ] = None


class IngressPolicy(Record, frozen=True, omit_defaults=True):
    """Where ingress runs."""

    control_plane_label: Annotated[
        str,
        doc("The label of control-plane nodes, with whatever value they have. Unset: for OpenShift's routers "
            "node-role.kubernetes.io/master where a node has it, else node-role.kubernetes.io/control-plane; for "
            "workloads the other way round.", max_length=317),
    ] = ""  # fmt: skip
    router_template: Annotated[
        dict[str, Any] | None,
        doc("Pod template (metadata, spec) of OpenShift routers that have no Deployment yet. It must pass Pod Security "
            "baseline; the host's network and ports are allowed.", schema=template_schema),
    ] = None  # fmt: skip
    wildcard_addresses: Annotated[
        tuple[str, ...], doc("Where the wildcard name points, if the operator cannot resolve it.", most=16)
    ] = ()
    workloads: Annotated[
        tuple[IngressWorkload, ...],
        doc("Ingresses to be placed: ingress-nginx, Traefik, HAProxy, Envoy Gateway ... Only those are placed that "
            "have the label hostler.dev/ingress: managed, or that the operator's HOSTLER_INGRESS_WORKLOADS names.",
            keys=("kind", "namespace", "name"), most=64),
    ] = ()  # fmt: skip


class ExpectedHost(Record, frozen=True, omit_defaults=True):
    """A host that is to become a node: its certificate requests are approved once, while it is expected."""

    name: Annotated[str, doc("The node's name.", least=1, max_length=253, pattern="^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
    since: Annotated[str, doc("From when on, by the API server's clock.", format="date-time")]
    until: Annotated[str, doc("Until when.", format="date-time")]
    addresses: Annotated[tuple[str, ...], doc("Its addresses, if they are known.", most=16)] = ()
    by: Annotated[
        str,
        doc("Who expects it, as the writer says. Proven only by the admission policy hostler-expected-hosts, which "
            "compares it with the user of the request.", max_length=WHO_LIMIT),
    ] = ""  # fmt: skip


class ServingCertificates(Record, frozen=True, omit_defaults=True):
    """What the serving certificate of a kubelet may hold. What is left out allows everything."""

    names: Annotated[
        tuple[Annotated[str, doc("A regular expression.", least=1, max_length=256)], ...],
        doc("Each DNS name must match one of these regular expressions as a whole.", most=32),
    ] = ()
    prefixes: Annotated[
        tuple[Annotated[str, doc("A CIDR.", least=1, max_length=64)], ...],
        doc("Each address must be in one of these networks, such as 10.0.0.0/8.", most=64),
    ] = ()
    max_days: Annotated[
        int, doc("A request may ask for a certificate that lives so many days at most. 0: any.", least=0, most=3650)
    ] = 0


class JoinPolicy(Record, frozen=True, omit_defaults=True):
    """Who may become a node."""

    expected: Annotated[
        tuple[ExpectedHost, ...],
        # What the admission policy can compare with the entries there were, within its limit of cost.
        doc("Hosts that are to become nodes (`hostler join expect`).", keys=("name",), most=1000),
    ] = ()
    serving: Annotated[ServingCertificates, doc("What the serving certificate of a kubelet may hold.")] = (
        ServingCertificates()
    )


class ScopedDaemonSet(Record, frozen=True, omit_defaults=True):
    """A DaemonSet, or all with some labels, that belong only on nodes of one platform."""

    namespace: Annotated[str, doc("Its namespace. With labels it may be unset: any.", least=1, max_length=63)] = ""
    name: Annotated[str, doc("Its name.", least=1, max_length=253)] = ""
    labels: Annotated[dict[str, str], doc("The labels of the DaemonSets, in place of a name.", least=1, most=16)] = (
        field(default_factory=dict)
    )
    platform: Annotated[str, doc("The platform it is for.", least=1, max_length=63, defaulted=True)] = "vsphere"
    key: Annotated[
        str,
        doc("The node label that says where it may run.", least=1, max_length=317, defaulted=True,
            pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"),
    ] = "node.kubernetes.io/instance-type"  # fmt: skip
    operator: Annotated[
        str, doc("How the label is compared.", pattern="^(Exists|DoesNotExist|In|NotIn)$", defaulted=True)
    ] = "Exists"
    values: Annotated[tuple[str, ...], doc("The values for In and NotIn.", most=64)] = ()


NAME_OR_LABELS = Rule(
    "self.all(one, has(one.labels) ? !has(one.name) : has(one.name) && has(one.namespace))",
    "each entry needs either namespace and name, or labels",
)
VALUES_WITH_IN = Rule(
    "self.all(one, (one.operator in ['In', 'NotIn']) == (has(one.values) && size(one.values) > 0))",
    "In and NotIn need values, Exists and DoesNotExist none",
)


class PlatformPolicy(Record, frozen=True, omit_defaults=True):
    """Nodes without cloud integration beside nodes with it."""

    daemon_sets: Annotated[
        tuple[ScopedDaemonSet, ...] | None,
        doc("DaemonSets that belong only on nodes of one platform; of two entries that choose the same one the first "
            "counts. Unset: the vSphere CSI node DaemonSet.", most=64, rules=(NAME_OR_LABELS, VALUES_WITH_IN)),
    ] = None  # fmt: skip


class FleetSpec(Record, frozen=True, omit_defaults=True):
    """What the cluster's owner decides."""

    max_unavailable: Annotated[
        int | str | None,
        doc(
            "Never more nodes than this out of service by Hostler at a time, over all causes: a number or a percentage "
            "of the nodes. Unset: the operator's MAX_UNAVAILABLE.",
            rules=(NUMBER_OR_PERCENT,),
        ),
    ] = None
    ingress: Annotated[IngressPolicy, doc("Where ingress runs.")] = IngressPolicy()
    join: Annotated[JoinPolicy, doc("Who may become a node.")] = JoinPolicy()
    platform: Annotated[PlatformPolicy, doc("Nodes without cloud integration beside nodes with it.")] = PlatformPolicy()


class CapabilityStatus(Record, frozen=True):
    """Whether one capability is on, and whether it may write."""

    name: Annotated[str, doc("The capability's name, as in --only.", max_length=63)]
    enabled: Annotated[bool, doc("It is switched on in the running operator.")]
    writes: Annotated[bool, doc("It may change things now.")]
    reason: Annotated[str, doc("Why it is on or off, or why it may not write.", max_length=1024)] = ""
    incumbent: Annotated[str, doc("The other controller at work in its place, if one was found.", max_length=253)] = ""


class FleetCounts(Record, frozen=True):
    """How many nodes there are and how many are out of service by us."""

    nodes: Annotated[int, doc("Nodes in the cluster.", least=0)] = 0
    held: Annotated[int, doc("Nodes that somebody holds (annotation hostler.dev/holds).", least=0)] = 0
    unavailable: Annotated[int, doc("Nodes out of service by Hostler.", least=0)] = 0
    ceiling: Annotated[int, doc("How many may be out of service by Hostler at a time.", least=0)] = 0


class ObservedPause(Record, frozen=True):
    """One Pause object that the operator has seen: it writes nothing while that exists."""

    name: Annotated[str, doc("Its name.", max_length=253)]
    uid: Annotated[str, doc("Its UID; empty if the object cannot be decoded.", max_length=63)] = ""
    claimed_by: Annotated[str, doc("Who it claims to be from. Nobody has checked it.", max_length=WHO_LIMIT)] = ""
    why: Annotated[str, doc("Why, shortened.", max_length=SHOWN_REASON_LIMIT)] = ""


class FleetStatus(Record, frozen=True):
    """What Hostler says about itself."""

    observed_generation: Annotated[int, doc("The generation of the spec this status is about.", least=0)] = 0
    leader: Annotated[str, doc("The operator that acts now.", max_length=512)] = ""
    version: Annotated[str, doc("The version of that operator.", max_length=63)] = ""
    counts: Annotated[FleetCounts, doc("Nodes.")] = FleetCounts()
    capabilities: Annotated[tuple[CapabilityStatus, ...], doc("Every capability.", keys=("name",), most=64)] = ()
    conditions: Annotated[tuple[Condition, ...], doc("The state at a glance.", keys=("type",), most=32)] = ()
    pauses: Annotated[
        tuple[ObservedPause, ...], doc("The Pause objects that stop writes, newest first.", most=PAUSES_SHOWN)
    ] = ()


class Fleet(Record, frozen=True):
    """The hosts under this cluster: the owner's decisions, and what Hostler says about itself."""

    metadata: Metadata = Metadata()
    spec: FleetSpec = FleetSpec()
    status: FleetStatus = FleetStatus()


class PauseSpec(Record, frozen=True, omit_defaults=True):
    """Why, and who says so."""

    why: Annotated[str, doc("Why; shown wherever something is held back.", max_length=REASON_LIMIT)] = ""
    by: Annotated[str, doc("Who claims to have paused. Nobody checks it: it proves nothing.", max_length=WHO_LIMIT)] = (
        ""
    )


class Pause(Record, frozen=True):
    """The stop button: while any Pause exists, no capability of Hostler writes anything."""

    metadata: Metadata = Metadata()
    spec: PauseSpec = PauseSpec()

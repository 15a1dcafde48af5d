"""What is known of nodes that want to come in, and what is decided about them: requests, invitations, rules, writes.

Approving a request lets a machine become a node. So everything here is either known or a reason why it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hostler.host.facts import Fact, Known
from hostler.instant import Instant
from hostler.kube.kinds import Kind
from hostler.kube.records import Condition, Metadata, Node, Record

SIGNING_REQUEST = Kind("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False)
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
OURS = (CLIENT, SERVING)
USED = "hostler-join"  # the ConfigMap that remembers whom we let in


class RequestSpec(Record, frozen=True):
    request: bytes = b""  # PEM; msgspec reads the base64 around it
    signer_name: str = ""
    usages: tuple[str, ...] = ()
    username: str = ""
    groups: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class RequestStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    certificate: bytes = b""


class SigningRequest(Record, frozen=True):
    """A CertificateSigningRequest. Its spec cannot change once it is made: what was judged is what is approved."""

    metadata: Metadata = Metadata()
    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()

    @property
    def decided_by(self) -> tuple[str, ...]:
        """The conditions by which it was decided, or that a certificate is there; empty: it is pending."""
        found = tuple(
            condition.type for condition in self.status.conditions if condition.type in ("Approved", "Denied", "Failed")
        )
        return found or (("a certificate is there",) if self.status.certificate else ())


@dataclass(frozen=True, slots=True)
class Policy:
    """What the owner set. `early` and `window` are seconds before and after a host's provisioning began."""

    bootstrappers: tuple[str, ...]
    early: float = 10.0
    window: float = 7200.0
    serving: bool = True
    slack: int = 100  # pending requests beyond the number of nodes or machines that are no flood yet
    api_server: str = ""  # the name or address at which we reach it
    clusters: frozenset[str] = frozenset()  # NAMESPACE/NAME of objects that stand for this very cluster
    # Per kind of the inventory, the namespaces whose objects invite anybody; a kind that is not listed: every one.
    inventories: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A host that is expected, by one source. `since` is when its provisioning began, by the cluster's clock."""

    name: str  # of the node it becomes
    source: str  # for people: "BareMetalHost metal/worker-1"
    kind: str
    since: Instant | None
    until: Instant | None = None  # where the source says so itself; else `since` plus the window
    addresses: frozenset[str] = frozenset()
    node: str = ""  # the node it has already
    again_since: Instant | None = None  # since when it may come once more, where that is not `since`
    cluster: str | None = ""  # NAMESPACE/NAME of the cluster it is for; "": it names none; None: that cannot be told
    also: frozenset[str] = frozenset()  # further names of the very same host, which gets one node under one of them
    outside: bool = False  # in a namespace whose objects invite nobody: kept only to say so

    @property
    def renewed(self) -> Instant | None:
        """A host that was let in before this moment may come in again."""
        return self.since if self.again_since is None else self.again_since

    def here(self, clusters: frozenset[str]) -> bool:
        """Whether it is for this cluster, which goes by these names. What cannot be told is not."""
        return not self.outside and (self.cluster == "" or self.cluster in clusters)


@dataclass(frozen=True, slots=True)
class Use:
    """A host was let in: by which request, made when (the cluster's clock)."""

    csr: str
    uid: str
    at: Instant


@dataclass(frozen=True, slots=True)
class Live:
    """The certificate a kubelet serves now, checked against the authority of kubelets."""

    name: str  # its common name
    dns: frozenset[str]
    ips: frozenset[str]


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many requests of nodes were made in the last hour and wait, and how many may."""

    pending: int
    allowed: int

    @property
    def is_flood(self) -> bool:
        return self.pending > self.allowed


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What the Fleet allows in serving certificates; an empty list and 0 allow everything."""

    names: tuple[str, ...] = ()  # regular expressions
    prefixes: tuple[str, ...] = ()  # CIDRs
    max_days: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a judgement rests upon. Mappings are by node name; `owners` says which nodes have an address."""

    nodes: Fact[Mapping[str, Node]]
    owners: Mapping[str, frozenset[str]]
    invited: Fact[Mapping[str, tuple[Invitation, ...]]]
    used: Fact[Mapping[str, Use]]
    crowd: Fact[Crowd]
    live: Mapping[str, Fact[Live]] = field(default_factory=dict)  # by uid of the request
    clusters: frozenset[str] = frozenset()  # the names this cluster goes by
    admitted: Mapping[str, Use] = field(default_factory=dict)  # the last request anybody approved, while it is there
    limits: Fact[ServingLimits] = field(default_factory=lambda: Known(ServingLimits(), 0.0))
    spoke: str = ""  # NAMESPACE/NAME of the further cluster all this is about; "": it is about the hub itself


class Outcome(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "unknown"


class RuleName(StrEnum):
    """Every rule; the value is what people read."""

    SHAPE = "shape"
    REQUESTER = "requester"
    NO_FLOOD = "no flood"
    # of a client certificate
    NEW_NODE = "new node"
    INVITED = "invited"
    ONE_HOST = "one host"
    HOST_IS_FREE = "host is free"
    WINDOW = "window"
    SINGLE_USE = "single use"
    CONTESTED = "contested"
    # of a serving certificate
    NODE = "node"
    OWN_NAMES = "its own names"
    NOT_ANOTHERS = "nobody else's names"
    NODE_NAMES = "names of nodes"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule and what it found."""

    name: RuleName
    outcome: Outcome
    why: str


class Act(StrEnum):
    APPROVE = "approve"
    WAIT = "wait"  # a fact is missing that may come: look again
    LEAVE = "leave"  # a rule does not hold: pending until a person decides
    IGNORE = "ignore"  # not of a shape we answer for
    DONE = "done"  # decided already


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with one request, every rule that was looked at, and the sentence."""

    csr: str
    uid: str
    act: Act
    why: str
    node: str = ""
    rules: tuple[Rule, ...] = ()
    created: Instant = 0.0
    serving: bool = False
    unknown_name: bool = False  # a holder of the bootstrap credential claims a name that nobody expects

    def outcome_of(self, name: RuleName) -> Outcome | None:
        """How a rule came out; None: it was not looked at."""
        return next((rule.outcome for rule in self.rules if rule.name is name), None)

    @property
    def is_contested(self) -> bool:
        """Another request is for the same host."""
        return self.outcome_of(RuleName.CONTESTED) is Outcome.FAILS


class Verb(StrEnum):
    CREATE = "create"
    PATCH = "patch"
    APPROVE = "approve"


@dataclass(frozen=True, slots=True)
class Write:
    """One write, as data. `lines` of our memory: None takes one away."""

    verb: Verb
    kind: Kind
    name: str
    why: str
    lines: Mapping[str, Use | None] = field(default_factory=dict)
    request: SigningRequest | None = None  # as it was judged
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Approvals, and what must be remembered before any of them; None: nothing, or it is remembered already."""

    memory: Write | None
    approvals: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about every pending request, in one pass."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by name of the request
    batches: tuple[Batch, ...] = ()
    wake: float | None = None

    def writes_about(self, csr: str) -> tuple[Write, ...]:
        """What is written to approve one request."""
        for batch in self.batches:
            for approval in batch.approvals:
                if approval.name == csr:
                    lines = batch.memory.lines if batch.memory is not None else {}
                    remembered = batch.memory is not None and self.verdicts[csr].node in lines
                    return (batch.memory, approval) if remembered and batch.memory is not None else (approval,)
        return ()


def holds(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.HOLDS, why)


def fails(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.FAILS, why)


def unknown(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.UNKNOWN, why)

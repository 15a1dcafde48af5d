"""What commands print with `-o json` where no other package has a record for it. Pure.

`hostler.cli.schemas` lists the shape of every command; docs/schemas has them as JSON Schema.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Shape(msgspec.Struct, rename="camel", frozen=True):
    """What the commands print: camelCase on the wire."""


class Versions(msgspec.Struct, frozen=True):
    """`version`. `kubernetes`: the API server's, with --server."""

    hostler: str
    python: str
    kubernetes: str = ""


class Withdrawn(Shape, frozen=True):
    """What a `withdraw` took back, one sentence each."""

    done: tuple[str, ...]


class AgentAsked(Shape, frozen=True):
    """A request that was written on an Agent, NAMESPACE/NAME. `said`: what happens next."""

    agent: str
    said: str


class DriverRemoved(Shape, frozen=True):
    """`platform remove-driver`."""

    driver: str
    removed: bool


class PodBlocked(Shape, frozen=True):
    """A pod that a drain could not evict. `budget`: the PodDisruptionBudget that does not let it go."""

    pod: str
    budget: str | None
    why: str


class NodeResult(Shape, frozen=True):
    """How a command ended for one node; `code` as an exit code. What follows it is of a `hold` or `release`
    (`changed`), or of a `drain` (the others)."""

    node: str
    result: str
    why: str
    code: int
    changed: bool = False
    state: str = ""
    left: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    blockers: tuple[PodBlocked, ...] = ()


class NodeResults(Shape, frozen=True):
    """`hold`, `release` and `drain`."""

    dry_run: bool
    nodes: tuple[NodeResult, ...]


class CrdsInstalled(Shape, frozen=True):
    """`crds --apply`."""

    names: tuple[str, ...]
    installed: bool
    why: str


class Definitions(Shape, frozen=True):
    """`crds`: a List of CustomResourceDefinitions, as kubectl reads it."""

    api_version: str
    kind: str
    items: tuple[dict[str, Any], ...]


class Unexpected(Shape, frozen=True):
    """`join expect NAME --remove`. `removed`: whether it was expected."""

    name: str
    removed: bool


class RuleJudged(Shape, frozen=True):
    """One rule of a certificate request."""

    name: str
    outcome: str
    why: str


class RequestJudged(Shape, frozen=True):
    """A pending certificate request. `cluster`: NAMESPACE/NAME of a further cluster; `approved`: of `join approve`."""

    name: str
    cluster: str
    node: str
    kind: str
    verdict: str
    why: str
    created: str
    rules: tuple[RuleJudged, ...]
    approved: bool = False


class HostExpected(Shape, frozen=True):
    """`join expect`. `byProven`: whether the API server compared `by` with the user who wrote it."""

    name: str
    since: str
    until: str
    addresses: tuple[str, ...] = ()
    by: str = ""
    by_proven: bool = False


class CertificateShown(msgspec.Struct, frozen=True):
    """`vcenter trust` without --sha256: what the vCenter shows."""

    vcenter: str
    subject: str
    issuer: str
    valid_from: str
    valid_until: str
    sha_256: str = msgspec.field(name="sha-256")


class LayoutStep(msgspec.Struct, frozen=True):
    """`install plan`: one decision about a new cluster, and where it comes from."""

    what: str
    value: str
    from_: str = msgspec.field(name="from")
    why: str


class ManifestsWritten(Shape, frozen=True):
    """`install manifests`. `written`: false if everything was there already."""

    dir: str
    written: bool
    files: tuple[str, ...]


class SandboxShown(Shape, frozen=True):
    """`sandbox up` (`news`, `seconds`) and `sandbox status` (`parts`)."""

    dir: str
    kubeconfig: str
    server: str
    vcenter: str | None
    control: str | None
    audit: str | None
    options: dict[str, Any]
    pids: dict[str, int]
    news: str = ""
    seconds: dict[str, float] = {}
    parts: tuple[dict[str, Any], ...] = ()


class SandboxEnded(Shape, frozen=True):
    """`sandbox down`."""

    ended: tuple[str, ...]
    kept: bool


class WorkloadConnected(Shape, frozen=True):
    """`sandbox workload`."""

    cluster: str
    namespace: str
    workload: str
    secrets: tuple[str, ...]

"""Other controllers that do what one of our capabilities does, and whether they are still at work. Pure.

Invariant: clocks of different machines are never compared. A lease counts as renewed because we saw its `renewTime`
change, and as left behind because it did not change for longer than its duration by our own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hostler.instant import Instant

# A lease that does not say how long it lasts is watched for this long before we call it left behind.
LEASE_SECONDS = 60.0
# A lease may be renewed a little late; an extra share of its duration before we believe that nobody will.
PATIENCE = 1.5
# A field manager counts as at work for this long after we saw it write.
WRITE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Where:
    """An object by place and name. An empty namespace means: in any."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Trail:
    """An object that only the incumbent writes under this field manager: `kind` is `deployments.apps` or the like."""

    kind: str
    at: Where
    manager: str


@dataclass(frozen=True, slots=True)
class Signs:
    """By what a Deployment of any name, in any namespace, is known as the incumbent's."""

    names: tuple[str, ...]  # of the Deployment, or its label app.kubernetes.io/name, which its chart sets
    images: tuple[str, ...]  # how the name of an image ends, without registry, tag and digest
    variables: tuple[str, ...]  # one container sets all of these


@dataclass(frozen=True, slots=True)
class Container:
    image: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A controller that a capability takes the place of, and by what it shows that it is alive."""

    name: str  # for people: "the Metal3 provider (capm3)"
    deployments: tuple[Where, ...] = ()
    leases: tuple[Where, ...] = ()
    trails: tuple[Trail, ...] = ()
    webhook_services: tuple[Where, ...] = ()  # Services its admission and conversion webhooks point at
    definitions: tuple[str, ...] = ()  # CRDs that may be converted by those webhooks
    remedy: str = ""
    signs: Signs | None = None


class State(StrEnum):
    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an incumbent is at work, with a sentence: the evidence, or what is not known."""

    state: State
    why: str
    incumbent: str = ""
    wake: float | None = None  # seconds until a further look may change the answer


@dataclass(frozen=True, slots=True)
class DeploymentSeen:
    at: Where
    replicas: int  # wanted: one that is down but wanted may be back at any moment
    ready: int
    sign: str = ""  # by what it was recognised, where not by its place and name


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    at: Where
    holder: str
    mark: str  # its renewTime, as text: only ever compared for being the same
    seconds: float


@dataclass(frozen=True, slots=True)
class TrailSeen:
    trail: Trail
    mark: str  # the time of the manager's last write, as text


@dataclass(frozen=True, slots=True)
class WebhookSeen:
    """A webhook of the incumbent and whether anything answers at the Service it points at."""

    name: str
    service: Where
    answered: bool


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one look at the cluster showed for one incumbent. `failed` are the looks that gave no answer."""

    deployments: tuple[DeploymentSeen, ...] = ()
    leases: tuple[LeaseSeen, ...] = ()
    trails: tuple[TrailSeen, ...] = ()
    webhooks: tuple[WebhookSeen, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Track:
    """One mark over time: since when it has been the same, and when we last saw it change."""

    mark: str
    since: Instant
    changed: Instant | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier looks saw. It may be lost at a restart; then a lease is watched once more before it is believed."""

    tracks: Mapping[str, Track] = field(default_factory=dict)


def recognise(signs: Signs, name: str, label: str, containers: Iterable[Container]) -> str:
    """By what this Deployment is known as the incumbent's; "" where it is not. `label`: app.kubernetes.io/name.

    Ours has the same variables, and may have been installed under the other's name: it sets HOSTLER_ variables.
    """
    known = tuple(containers)
    if any(variable.startswith("HOSTLER_") for one in known for variable in one.variables):
        return ""
    if label in signs.names:
        return f"label app.kubernetes.io/name={label}"
    if name in signs.names:
        return "its name"
    for one in known:
        if _image_name(one.image).endswith(signs.images):
            return f"image {one.image}"
        if set(signs.variables) <= set(one.variables):
            return f"it sets {' and '.join(signs.variables)}"
    return ""


def _image_name(image: str) -> str:
    """`registry:5000/team/name:tag@sha256:...` is `registry:5000/team/name`."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(":")[0]


def remember(memory: Memory, sighting: Sighting, now: Instant) -> Memory:
    """Fold one look into what is known. `now` is our own clock, the same one at each call."""
    marks = {f"lease {seen.at}": seen.mark for seen in sighting.leases}
    marks |= {f"trail {seen.trail.at} {seen.trail.manager}": seen.mark for seen in sighting.trails}
    tracks = dict(memory.tracks)
    for key, mark in marks.items():
        old = tracks.get(key)
        if old is None:
            tracks[key] = Track(mark, now)
        elif old.mark != mark:
            tracks[key] = replace(old, mark=mark, since=now, changed=now)
    return Memory(tracks)


def judge(incumbent: Incumbent, sighting: Sighting, memory: Memory, now: Instant) -> Verdict:
    """Whether `incumbent` is at work. Evidence that it is wins over looks that failed; those win over absence."""
    for deployment in sighting.deployments:
        if deployment.replicas > 0:
            return _found(
                incumbent,
                f"Deployment {deployment.at}{f' ({deployment.sign})' if deployment.sign else ''} is scaled to "
                f"{deployment.replicas}, of which ready: {deployment.ready}",
            )
    lease = _judge_leases(incumbent, sighting, memory, now)
    if lease is not None and lease.state is State.FOUND:
        return lease
    for trail in sighting.trails:
        track = memory.tracks.get(f"trail {trail.trail.at} {trail.trail.manager}")
        if track is not None and track.changed is not None and now - track.changed < WRITE_SECONDS:
            return _found(
                incumbent,
                f'field manager "{trail.trail.manager}" wrote {trail.trail.kind} {trail.trail.at} '
                f"{now - track.changed:.0f} s ago",
                wake=WRITE_SECONDS - (now - track.changed),
            )
    nowhere = sorted(seen.name for seen in sighting.webhooks if not seen.answered)
    if nowhere:
        return _found(
            incumbent,
            f"it is gone, but its webhook {nowhere[0]}{_more(nowhere)} is still registered and points at nothing, "
            "so the API server would refuse our writes",
        )
    if sighting.failed:
        return Verdict(
            State.UNKNOWN,
            f"Whether {incumbent.name} is at work is not known: {sighting.failed[0]}{_more(sighting.failed)}.",
            incumbent.name,
        )
    return lease or Verdict(State.ABSENT, f"{incumbent.name} was looked for and is not there.", incumbent.name)


def _judge_leases(incumbent: Incumbent, sighting: Sighting, memory: Memory, now: Instant) -> Verdict | None:
    """Found if one was renewed under our eyes; unknown while one may still be; None if none speaks for a holder."""
    waiting: Verdict | None = None
    for lease in sighting.leases:
        track = memory.tracks.get(f"lease {lease.at}")
        if not lease.holder or track is None:
            continue
        patience = (lease.seconds or LEASE_SECONDS) * PATIENCE
        left = patience - (now - track.since)
        if left <= 0:
            continue
        if track.changed is not None:
            return _found(incumbent, f"{lease.holder} renews lease {lease.at}", wake=left)
        waiting = Verdict(
            State.UNKNOWN,
            f"Whether {incumbent.name} is at work is not known yet: lease {lease.at} names {lease.holder}; "
            f"if it is not renewed within {left:.0f} s it counts as left behind.",
            incumbent.name,
            wake=left,
        )
    return waiting


def _found(incumbent: Incumbent, evidence: str, *, wake: float | None = None) -> Verdict:
    remedy = f" {incumbent.remedy}" if incumbent.remedy else ""
    return Verdict(State.FOUND, f"{_upper(incumbent.name)}: {evidence}.{remedy}", incumbent.name, wake)


def _more(items: tuple[str, ...] | list[str]) -> str:
    return f" and {len(items) - 1} more" if len(items) > 1 else ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]

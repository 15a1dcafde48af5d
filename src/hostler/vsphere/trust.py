"""Trust on first use: which pin a vCenter is compared with, and what happens when there is none yet.

`decide_trust` is pure; `Trust` asks the place where pins are kept, makes the first contact and keeps what came of it.
It runs on a vCenter's own thread, before each login.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

from hostler.errors import Complaint
from hostler.instant import Instant, iso
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.pinned_tls import choose_pin, look_at_server
from hostler.vsphere.pins import Entry, NotAnEntry, Pin, describe_certificate, entry_key, read_entry

log = structlog.get_logger("hostler.vsphere")

FIRST_CONTACT = "first contact"


class Says(StrEnum):
    """What the place where pins are kept says of one vCenter."""

    PINNED = "pinned"
    NOTHING = "nothing"  # known: it was never contacted, or its entry was deleted
    NO_PLACE = "no-place"  # nothing can be kept: a dry run, a missing right, a missing namespace
    UNKNOWN = "unknown"  # the place cannot be asked now
    UNREADABLE = "unreadable"  # there is an entry, and it is garbage


@dataclass(frozen=True, slots=True)
class Remembered:
    says: Says
    entry: Entry | None = None  # of PINNED
    why: str = ""  # of NO_PLACE, UNKNOWN and UNREADABLE
    held: str = ""  # why nothing may be written now; empty: it may


class Do(StrEnum):
    USE = "use"
    CONTACT = "contact"  # look at the certificate for the first time
    RESTORE = "restore"  # keep again what this process trusts, and use it
    REFUSE = "refuse"  # do not connect


@dataclass(frozen=True, slots=True)
class Decision:
    do: Do
    entry: Entry | None = None  # to USE or RESTORE
    why: str = ""


def decide_trust(remembered: Remembered, used: Entry | None) -> Decision:
    """`used` is what this process has compared with before; it never gives way to a new first contact."""
    match remembered.says:
        case Says.PINNED:
            return Decision(Do.USE, remembered.entry)
        case Says.UNREADABLE:
            return Decision(Do.REFUSE, why=remembered.why)
        case Says.UNKNOWN:
            return Decision(Do.USE, used) if used else Decision(Do.REFUSE, why=remembered.why)
        case Says.NO_PLACE:
            return Decision(Do.USE, used, remembered.why) if used else Decision(Do.CONTACT, why=remembered.why)
        case Says.NOTHING if used:
            return Decision(Do.USE if remembered.held else Do.RESTORE, used)
        case Says.NOTHING if remembered.held:
            return Decision(Do.REFUSE, why=f"a first contact would be remembered. {remembered.held}")
        case Says.NOTHING:
            return Decision(Do.CONTACT)


class PinStore(Protocol):
    """Where pins outlive this process. Called from a vCenter's thread; never raises for what the place answers."""

    def read(self, endpoint: Endpoint) -> Remembered: ...

    def keep(self, endpoint: Endpoint, entry: Entry) -> Remembered:
        """Keep it unless there is one already. What is kept after that: another replica may have been faster."""


class InMemory:
    """Nothing outlives the process."""

    def read(self, _: Endpoint) -> Remembered:
        return Remembered(Says.NO_PLACE, why="this process keeps it in memory only")

    def keep(self, endpoint: Endpoint, _: Entry) -> Remembered:
        return self.read(endpoint)


class ReadOnly:
    """What was remembered by others, for a command that logs in once: it makes no first contact of its own."""

    def __init__(self, entries: Mapping[str, bytes], why: str) -> None:
        """`why` nothing is known of a vCenter that has no entry."""
        self._entries, self._why = entries, why

    def read(self, endpoint: Endpoint) -> Remembered:
        data = self._entries.get(entry_key(endpoint.host, endpoint.port))
        if data is None:
            return Remembered(Says.UNKNOWN, why=self._why)
        try:
            return Remembered(Says.PINNED, read_entry(data, endpoint.name))
        except NotAnEntry as error:
            return Remembered(Says.UNREADABLE, why=f"what was remembered cannot be used: {error}.")

    def keep(self, endpoint: Endpoint, _: Entry) -> Remembered:
        return self.read(endpoint)


class TrustUnavailable(Complaint):
    """There is nothing to compare this vCenter's certificate with, so it is not connected to."""


class Trust:
    """One per process, for all its vCenters. `pin_for` blocks and belongs to a vCenter's own thread."""

    def __init__(self, store: PinStore | None = None, clock: Callable[[], Instant] = time.time) -> None:
        self._store: PinStore = store or InMemory()
        self._clock = clock
        self._used: dict[str, Entry] = {}
        self._warnings: dict[str, str] = {}

    def warning(self, endpoint: Endpoint) -> str:
        """Why what is trusted will be forgotten at a restart; "" where it is not so."""
        return self._warnings.get(endpoint.name, "")

    def pin_for(self, endpoint: Endpoint) -> Pin:
        """What to compare its certificate with. Raises TrustUnavailable, or OSError from a first contact."""
        remembered = self._store.read(endpoint)
        decision = decide_trust(remembered, self._used.get(endpoint.name))
        entry = decision.entry
        if decision.do is Do.REFUSE:
            raise TrustUnavailable(f"Nothing says which certificate to expect: {decision.why}")
        if decision.do is Do.USE and entry is not None:
            return self._use(endpoint, entry, decision.why)
        first = decision.do is Do.CONTACT or entry is None
        if entry is None or first:
            entry = self._contact(endpoint)
        else:
            log.warning("what is trusted of a vCenter was deleted; it is written again", vcenter=endpoint.name)
        kept = remembered if remembered.says is Says.NO_PLACE else self._store.keep(endpoint, entry)
        if kept.says is Says.PINNED and kept.entry is not None:
            used, memory_only = kept.entry, ""  # perhaps another replica's, which was faster
        elif kept.says is Says.NO_PLACE:
            used, memory_only = entry, kept.why
        else:
            raise TrustUnavailable(f"What certificate it has could not be remembered: {kept.why}")
        if first:
            _log_first_contact(used)
        return self._use(endpoint, used, memory_only)

    def _contact(self, endpoint: Endpoint) -> Entry:
        """Nothing but the certificate and the public list of CAs is asked for; no credential is sent."""
        seen = look_at_server(endpoint.host, endpoint.port)
        pin = choose_pin(endpoint.host, endpoint.port, seen)
        return make_entry(endpoint.name, seen.leaf, pin, by=FIRST_CONTACT, since=iso(self._clock()))

    def _use(self, endpoint: Endpoint, entry: Entry, memory_only: str) -> Pin:
        name = endpoint.name
        warned, self._warnings[name] = self._warnings.get(name, ""), memory_only
        if memory_only and not warned:
            log.warning("what is trusted of a vCenter is forgotten at a restart", vcenter=name, why=memory_only)
        self._used[name] = entry
        return entry.pin


def _log_first_contact(entry: Entry) -> None:
    """What is compared from now on, which a person is to check: with two replicas not always what this one has seen."""
    log.warning(
        "first contact: from now on this vCenter is recognised by its certificate", vcenter=entry.vcenter,
        sha256=entry.sha256, by="its CA" if entry.ca else "its fingerprint", issuer=entry.issuer,
        check=f"compare it with vCenter's own; another one is accepted by `hostler vcenter trust {entry.vcenter}`",
    )  # fmt: skip


def make_entry(name: str, leaf: bytes, pin: Pin, *, by: str = "", since: str = "") -> Entry:
    shown = describe_certificate(leaf)
    return Entry(name, shown.sha256, pin.ca, shown.subject, shown.issuer, shown.not_after, by, since)

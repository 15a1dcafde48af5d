"""Follows one vCenter by push: a thread that waits at the server for changes and hands them to the event loop.

After any loss (session, connection, server) everything is listed anew, and what is not listed is gone. The server's
answers are decoded here; the loop only puts small records into its inventory.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from hostler.errors import Complaint
from hostler.instant import Instant
from hostler.vsphere import faults, selection
from hostler.vsphere.decode import Change, change, gone
from hostler.vsphere.inventory import Batch
from hostler.vsphere.metrics import Metrics
from hostler.vsphere.records import Host
from hostler.vsphere.session import Link, NotConnected, Session, Standing, Waiting, diagnose
from hostler.vsphere.vmomi import BROKEN, Unreadable, moref, vim, vmodl
from hostler.vsphere.vmomi import PropertyCollector as PC

log = structlog.get_logger("hostler.vsphere")

BACKOFF_FIRST, BACKOFF_MOST = 0.2, 30.0
# How often a refused credential's files are looked at; that costs the vCenter nothing.
CREDENTIAL_SECONDS = 1.0
# How often a vCenter is looked at that shows another certificate: an accepted one is used this soon.
CERTIFICATE_SECONDS = 2.0
# A session is asked for by name this often while nothing else is said; one call a minute.
ALIVE_SECONDS = 60.0
# Long waits cut this often in a row: something in between does not let them live, so we poll instead.
CUTS_BEFORE_POLLING = 3
# So often a long wait is tried again meanwhile: whatever cut them may be gone, and a poll is slower than a push.
POLLING_SECONDS = 600.0


class Watcher:
    """One vCenter's thread. `tell` gets batches and `stands` gets links, both on the watcher's thread."""

    def __init__(
        self,
        session: Session,
        metrics: Metrics,
        *,
        poll: float,
        tell: Callable[[Batch], None],
        stands: Callable[[Link], None],
        ended: Callable[[], None],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self.session = session
        self.extra: frozenset[str] = frozenset()  # VMs to read devices of wherever they are; replaced as a whole
        self._metrics, self._poll, self._clock = metrics, poll, clock
        self._tell, self._stands, self._ended = tell, stands, ended
        self._stop = threading.Event()
        self._collector: Any = None
        self._link: Link | None = None
        self._failures = 0
        self._expired = False  # another thread has found our session gone
        self._cuts = 0  # long waits in a row that broke
        self._offering: set[str] = set()  # hosts that offer devices
        # The filters over devices, by what they are over. Two, because a new filter tells everything anew: the VMs that
        # are followed change with every maintenance, the hosts with devices hardly ever.
        self._heavy: dict[str, tuple[frozenset[str], Any]] = {}
        self._thread = threading.Thread(target=self._run, name=f"vcenter-{session.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; blocks for one short call. `ended` is called when it has."""
        self._stop.set()
        collector = self._collector
        if collector is not None:
            try:
                collector.CancelWaitForUpdates()
            except faults.RAISED as error:
                log.debug("nothing to cancel", vcenter=self.session.name, error=str(error)[:200])

    def doubt(self) -> None:
        """Somebody's call was refused for want of a session: if it is gone, do not wait for the server to say so.

        Blocks; for the room's threads.
        """
        if self._gone():
            self._expired = True
            self.session.cut_waits()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                pause = self._follow()
                if not self._stop.is_set():
                    self._stop.wait(pause)
            self._stand(Standing.STOPPED, f"vCenter {self.session.name} is not followed: we are stopping.")
        finally:
            self._ended()

    def _follow(self) -> float:
        """Log in and follow until something ends it; returns how long to pause before the next try."""
        try:
            self._open()
            self._expired = False
            if self._link is None or self._link.standing is not Standing.EXPIRED:
                self._stand(Standing.CONNECTING, f"vCenter {self.session.name} is being read.")
            with self._filters() as collector:
                self._watch(collector)
            return 0.0
        except Waiting as error:
            self._lost(error, "credential", quiet=True)
            return CREDENTIAL_SECONDS
        except vim.fault.InvalidLogin as error:
            self._lost(error, "credential")
            return CREDENTIAL_SECONDS
        except vim.fault.NotAuthenticated as error:
            self._lost(error, "expired")
        except (vmodl.query.InvalidCollectorVersion, vmodl.fault.ManagedObjectNotFound) as error:
            self._lost(error, "collector")  # the server forgot our collector: it was restarted or tidied up
        except ssl.SSLCertVerificationError as error:
            self._lost(error, "certificate")
            return CERTIFICATE_SECONDS
        except BROKEN as error:
            self._lost(error, "unreachable")
        except Complaint as error:
            self._lost(error, "refused")  # a file or a Secret that cannot be read: a person mends it
            return CERTIFICATE_SECONDS
        except vmodl.MethodFault as error:
            self._lost(error, "refused")
        except Unreadable as error:
            if self._gone():
                self._lost(vim.fault.NotAuthenticated(), "expired")
            else:
                self._lost(error, "unreadable")
        except Exception as error:
            # The thread's edge: a bug must not end it, or this vCenter would never be followed again.
            log.exception("the watcher failed; it begins again", vcenter=self.session.name)
            self._lost(error, "failed")
        finally:
            self.session.close()
        return self._pause()

    def _open(self) -> None:
        try:
            self.session.open()
        except BROKEN:
            self._cuts = 0  # the server itself is away: that is what cut the last wait, and nothing in between
            raise

    def _gone(self) -> bool:
        """Whether the server has forgotten our session, when it does not say so in words we understand."""
        try:
            return not self.session.alive()
        except vim.fault.NotAuthenticated:
            return True
        except NotConnected:
            return False
        except faults.RAISED:
            return False

    def _watch(self, collector: Any) -> None:
        version, alive = self._sync(collector), time.monotonic()
        if self._stop.is_set():
            return  # perhaps in the middle of the listing: half of it is no knowledge
        self._failures = 0
        self._stand(Standing.CONNECTED, f"vCenter {self.session.name} is connected.")
        began = time.monotonic()
        while not self._stop.is_set():
            if self._cuts >= CUTS_BEFORE_POLLING and time.monotonic() - began > POLLING_SECONDS:
                began, self._cuts = time.monotonic(), CUTS_BEFORE_POLLING - 1
            polling = self._cuts >= CUTS_BEFORE_POLLING
            if polling and self._stop.wait(self._poll):
                return
            updates = self._wait(collector, version, 0 if polling else self._poll)
            self._cuts = 0 if updates is None and not polling else self._cuts
            if updates is not None:
                version = updates.version
                self._tell(self._batch(updates))
            elif self._stop.is_set():
                return
            else:
                self._tell(Batch((), self._clock()))
            self._watch_devices(collector)
            if time.monotonic() - alive > ALIVE_SECONDS:
                alive = time.monotonic()
                if not self.session.alive():
                    raise vim.fault.NotAuthenticated()

    def _sync(self, collector: Any) -> str:
        """List everything, then the devices; the batches make one listing. Returns the version to go on from."""
        self._offering, self._heavy = set(), {}
        version = self._gather(collector, "", began=True)
        if self._watch_devices(collector):
            version = self._gather(collector, version)
        if not self._stop.is_set():
            self._tell(Batch((), self._clock(), complete=True))
        return version

    def _gather(self, collector: Any, version: str, began: bool = False) -> str:
        """Every page of what the server has to say now."""
        more = True
        while more and not self._stop.is_set():
            updates = self._wait(collector, version, 0)
            if updates is None:
                if began and not self._stop.is_set():
                    # Believing it would mean that every host and VM is gone.
                    raise Unreadable("a first look that shows nothing at all")
                break
            version, more = updates.version, bool(updates.truncated)
            self._tell(self._batch(updates, began=began))
            began = False
        return version

    def _wait(self, collector: Any, version: str, seconds: float) -> Any:
        options = PC.WaitOptions(maxWaitSeconds=int(seconds))
        waiting = PC(moref(collector), self.session.waits if seconds else self.session.calls)
        try:
            return waiting.WaitForUpdatesEx(version, options)
        except vmodl.fault.RequestCanceled:
            if self._stop.is_set():
                return None
            raise
        except BROKEN:
            if self._expired:
                raise vim.fault.NotAuthenticated() from None
            self._cuts += 1 if seconds else 0
            raise

    def _batch(self, updates: Any, began: bool = False) -> Batch:
        changes: list[Change] = []
        missing: list[tuple[str, str]] = []
        heavy = {moref(one) for _, one in self._heavy.values()}
        for part in updates.filterSet or ():
            light = moref(part.filter) not in heavy
            for update in part.objectSet or ():
                values = [(one.name, one.val) for one in update.changeSet or ()]
                # A VM that left the hosts with devices keeps what we know of it: only the light filter says "gone".
                left = update.kind == "leave"
                found = (gone(update.obj) if light else None) if left else change(update.obj, values, update.missingSet)
                if found is not None:
                    changes.append(found)
                    self._note(found)
            missing += [(moref(one.obj), faults.read(one.fault).sentence) for one in part.missingSet or ()]
        instance = str(self.session.content.about.instanceUuid or "") if began else ""
        return Batch(tuple(changes), self._clock(), began=began, missing=tuple(missing), instance=instance)

    def _note(self, found: Change) -> None:
        """Keep in mind which hosts offer devices."""
        if found.kind is not Host:
            return
        if found.fields is None:
            self._offering.discard(found.moref)
        elif found.fields.get("passthrough") or found.fields.get("vgpu_profiles"):
            self._offering.add(found.moref)

    def _watch_devices(self, collector: Any) -> bool:
        """Follow the devices of today's hosts and VMs; True if a filter is new and its objects are still to come."""
        new = self._watch_these(collector, "hosts", frozenset(self._offering), lambda hosts: (hosts, ()))
        return self._watch_these(collector, "vms", self.extra, lambda vms: ((), vms)) or new

    def _watch_these(
        self,
        collector: Any,
        what: str,
        wanted: frozenset[str],
        split: Callable[[frozenset[str]], tuple[Collection[str], Collection[str]]],
    ) -> bool:
        known, old = self._heavy.get(what, (frozenset(), None))
        if wanted == known:
            return False
        self._heavy.pop(what, None)
        if wanted:
            made = collector.CreateFilter(selection.devices(*split(wanted), self.session.calls), False)
            self._heavy[what] = (wanted, made)
        if old is not None:
            old.DestroyPropertyFilter()
        return bool(wanted)

    @contextmanager
    def _filters(self) -> Iterator[Any]:
        """The view, the collector of our own and its filters; all destroyed at the end, servers allow only so many."""
        content = self.session.content
        made: list[Any] = []
        try:
            viewed = selection.view(self.session)
            made.append(viewed.DestroyView)
            collector = content.propertyCollector.CreatePropertyCollector()
            made.append(collector.DestroyPropertyCollector)
            collector.CreateFilter(selection.everything(viewed, self.session), False)
            self._collector = collector
            yield collector
        finally:
            self._collector = None
            if self._stop.is_set():
                # Only then is the session in order; after a loss all of it went with the session.
                self._tidy(made)

    def _tidy(self, made: list[Callable[[], None]]) -> None:
        for destroy in reversed(made):
            try:
                destroy()
            except faults.RAISED as error:
                log.debug("could not tidy up; it ends with the session", error=str(error)[:200])

    # -- how we stand

    def _lost(self, error: Exception, why: str, quiet: bool = False) -> None:
        if self._stop.is_set():
            return
        if not quiet:
            self._metrics.restarted(self.session.name, why)
        link = diagnose(self.session.name, error, self._clock)
        self._stand(link.standing, link.sentence)

    def _stand(self, standing: Standing, sentence: str) -> None:
        """Say it once; `since` stays while the standing does."""
        before = self._link
        if before is not None and before.standing is standing:
            if before.sentence == sentence:
                return
            self._link = Link(standing, sentence, before.since)
        else:
            self._link = Link(standing, sentence, self._clock())
            fine = standing in (Standing.CONNECTED, Standing.CONNECTING, Standing.STOPPED, Standing.EXPIRED)
            (log.info if fine else log.warning)(sentence, vcenter=self.session.name, standing=str(standing))
        self._stands(self._link)

    def _pause(self) -> float:
        """Doubling, with full jitter, so that a thousand clients do not come back together."""
        self._failures += 1
        return random.random() * min(BACKOFF_FIRST * 2.0 ** min(self._failures, 20), BACKOFF_MOST)  # nosec B311 # jitter

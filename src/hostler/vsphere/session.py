"""Being logged in to one vCenter: one session, opened by the watcher's thread only, used by every thread.

A wrong password is tried once: SSO locks accounts. It is tried again when the credential is another one. Every way of
not being connected is a `Link` with a sentence and since when; nothing here raises into the event loop. The vCenter's
certificate is judged on every connection before anything is sent (`Endpoint.tls`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from hostler.errors import Complaint
from hostler.instant import Instant, iso
from hostler.vsphere import faults
from hostler.vsphere.endpoints import Endpoint, Login
from hostler.vsphere.metrics import Metrics
from hostler.vsphere.pinned_tls import CertificateRefused, refused_certificate
from hostler.vsphere.pins import Pin
from hostler.vsphere.trust import Trust
from hostler.vsphere.vmomi import BROKEN, Stub, service, vim

log = structlog.get_logger("hostler.vsphere")

CALL_SECONDS = 30.0  # a call that takes longer found a dead server


class Standing(StrEnum):
    """How we stand with a vCenter."""

    CONNECTING = "connecting"  # logging in, or reading everything for the first time
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    BAD_CERTIFICATE = "bad-certificate"
    WRONG_CREDENTIAL = "wrong-credential"  # not tried again until it changes
    EXPIRED = "expired"  # the session is gone; a new one is being opened
    REFUSED = "refused"  # it answered, but not as a vCenter that lets us in
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Link:
    standing: Standing
    sentence: str
    since: Instant

    @property
    def connected(self) -> bool:
        return self.standing is Standing.CONNECTED

    def __str__(self) -> str:
        return f"{self.sentence} (since {iso(self.since)})"


class NotConnected(Exception):
    """There is no session to make a call with; the text is the link's sentence."""


class Waiting(Exception):
    """No login is tried: the credential was refused and is still the same."""


class Session:
    """The session of one vCenter. `open` and `close` belong to one thread; `calls` may be used by any."""

    def __init__(self, endpoint: Endpoint, metrics: Metrics, wait_seconds: float, trust: Trust | None = None) -> None:
        self.endpoint = endpoint
        self.trust = trust or Trust()
        self.name = endpoint.name
        self._metrics = metrics
        self._wait_seconds = wait_seconds
        self._rejected: Login | None = None
        self._calls: Stub | None = None
        self._waits: Stub | None = None
        self._content: Any = None
        self._cut = False

    @property
    def calls(self) -> Stub:
        """What calls are made with. Raises NotConnected."""
        stub = self._calls
        if stub is None or self._content is None:
            raise NotConnected(f"there is no session with vCenter {self.name}")
        return stub

    @property
    def content(self) -> Any:
        content = self._content
        if content is None:
            raise NotConnected(f"there is no session with vCenter {self.name}")
        return content

    @property
    def waits(self) -> Stub:
        """As `calls`, with a time limit that fits a call which waits at the server."""
        if self._waits is None:
            raise NotConnected(f"there is no session with vCenter {self.name}")
        return self._waits

    def open(self) -> None:
        """Log in. Raises Complaint, a fault or a broken connection; `diagnose` makes a link of each."""
        login = self.endpoint.login()
        if login == self._rejected:
            raise Waiting
        pin = self.trust.pin_for(self.endpoint) if self.endpoint.pinned else Pin(self.endpoint.certificate_sha256)
        tls = self.endpoint.tls(pin)
        self._drop()
        self._calls = self._stub(tls, CALL_SECONDS)
        self._waits = self._stub(tls, self._wait_seconds + CALL_SECONDS / 2)
        try:
            content = service(self._calls).RetrieveContent()
            content.sessionManager.Login(login.user, login.password)
        except vim.fault.InvalidLogin:
            self._rejected = login
            self._metrics.logged_in(self.name, "refused")
            self._drop()
            raise
        except Exception as error:
            self._metrics.logged_in(self.name, "failed")
            self._drop()
            if isinstance(error, ssl.SSLCertVerificationError) and pin.sha256:
                raise refused_certificate(self.endpoint.host, self.endpoint.port, pin, error) from error
            raise
        self._rejected = None
        self._waits.cookie = self._calls.cookie
        self._content = content
        self._metrics.logged_in(self.name, "ok")

    def alive(self) -> bool:
        """Whether the server still knows us: some answer an expired session with null instead of a fault."""
        return self.content.sessionManager.currentSession is not None

    def close(self) -> None:
        """Log out, so that no session is left at the server. Best effort: the server may be gone."""
        content, self._content = self._content, None
        if content is not None:
            try:
                content.sessionManager.Logout()
            except faults.RAISED as error:
                log.info("could not log out; the session ends by itself", vcenter=self.name, error=str(error)[:200])
        self._drop()

    def cut_waits(self) -> None:
        """End the call that waits at the server, from any thread."""
        waits = self._waits
        if waits is not None:
            waits.cut()

    def cut(self) -> None:
        """End every call under way, from any thread."""
        self._cut = True
        for stub in (self._calls, self._waits):
            if stub is not None:
                stub.cut()

    def _stub(self, tls: ssl.SSLContext, timeout: float) -> Stub:
        if self._cut:
            raise ConnectionAbortedError("we are stopping")
        name, metrics = self.name, self._metrics
        return Stub(self.endpoint.host, self.endpoint.port, tls, timeout, lambda call: metrics.called(name, call))

    def _drop(self) -> None:
        for stub in (self._calls, self._waits):
            if stub is not None:
                stub.cut()
        self._calls = self._waits = self._content = None


def diagnose(name: str, error: Exception, clock: Callable[[], Instant] = time.time) -> Link:
    """What an error means for our standing with this vCenter, in words."""

    def link(standing: Standing, sentence: str) -> Link:
        return Link(standing, f"vCenter {name} {sentence}", clock())

    match error:
        case vim.fault.InvalidLogin() | Waiting():
            return link(
                Standing.WRONG_CREDENTIAL,
                "refuses our user or password. It is not tried again until the credential changes, because accounts "
                "get locked; correct VCENTER_USER and VCENTER_PASSWORD or the files they come from.",
            )
        case vim.fault.NotAuthenticated():
            return link(Standing.EXPIRED, "has ended our session; a new one is being opened.")
        case CertificateRefused():
            return link(Standing.BAD_CERTIFICATE, _another_certificate(name, error))
        case ssl.SSLCertVerificationError():
            return link(
                Standing.BAD_CERTIFICATE,
                f"has a certificate that we do not trust ({error.verify_message}). "
                "Set VCENTER_CA_BUNDLE to the CA that issued it.",
            )
        case Complaint():
            return link(Standing.REFUSED, f"is not asked: {error.sentence}")
        case NotConnected():
            return link(Standing.UNREACHABLE, f"is not connected: {error}.")
        case _ if isinstance(error, BROKEN):
            return link(Standing.UNREACHABLE, f"cannot be reached: {error or type(error).__name__}.")
        case _ if isinstance(error, faults.RAISED):
            return link(Standing.REFUSED, f"refuses: {faults.read(error).sentence}.")
        case _:  # a bug of ours; the log has the traceback
            return link(Standing.REFUSED, f"sent what we cannot read: {type(error).__name__}: {str(error)[:200]}.")


def _another_certificate(name: str, error: CertificateRefused) -> str:
    why = f" ({error.why})" if error.why else ""
    shown = f"SHA-256 {error.shown}" if error.shown else "not known"
    return (
        f"shows another certificate than the trusted one{why}, so nothing was sent to it. Shown: {shown}. "
        f"Trusted: {error.pin}. If vCenter's certificate was replaced on purpose, compare the shown one with vCenter's "
        f"own and accept it: hostler vcenter trust {name} --sha256 {error.shown or 'FINGERPRINT'} "
        "(or, where VCENTER_CERTIFICATE_SHA256 is set, add it there)."
    )

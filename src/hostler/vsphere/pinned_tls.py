"""TLS connections to a vCenter that is recognised by a pin: the certificate is judged before anything is sent.

The judgement is part of the TLS context itself, at the end of every handshake: no connection made with this context
(SOAP calls, the waiting call, reconnects, downloads) can leave it out. A resumed session would show no certificate,
so none is ever resumed. Where a CA is pinned, OpenSSL checks chain, dates and host name in the handshake.
"""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from typing import Any

from hostler.fingerprints import fingerprint_of
from hostler.vsphere.pins import BUNDLE_BYTES, Pin, issuing_authorities

PUBLISHED = "/certs/download.zip"  # where a vCenter publishes the CAs it uses, to anybody
SECONDS = 15.0


class CertificateRefused(ssl.SSLCertVerificationError):
    """The server shows another certificate than the pinned one. Nothing was sent to it."""

    def __init__(self, pin: Pin, shown: str, why: str = "") -> None:
        """`shown` is the fingerprint of what it shows, "" where that could not be seen; `why` is OpenSSL's reason."""
        super().__init__(1, f"the server shows a certificate with SHA-256 {shown}, trusted is {pin}")
        self.pin, self.shown, self.why = pin, shown, why


class _JudgedSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        context = self.context
        assert isinstance(context, PinnedContext)
        context.judge(self)


class PinnedContext(ssl.SSLContext):
    """A client's context that lets only the pinned certificate through. A pin without fingerprints refuses all."""

    sslsocket_class = _JudgedSocket
    pin: Pin

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        if server_side or session is not None or not do_handshake_on_connect:
            raise ValueError("a pinned connection is a client's, with a full handshake of its own")
        return super().wrap_socket(sock, suppress_ragged_eofs=suppress_ragged_eofs, server_hostname=server_hostname)

    def wrap_bio(self, *_: Any, **__: Any) -> ssl.SSLObject:
        raise NotImplementedError("a pinned connection is made with wrap_socket, where its certificate is judged")

    def judge(self, connected: ssl.SSLSocket) -> None:
        """Raises CertificateRefused, upon which the socket is closed before anything is written to it."""
        der = connected.getpeercert(binary_form=True)
        shown = fingerprint_of(der) if der else ""
        if connected.session_reused or not shown:
            raise CertificateRefused(self.pin, shown, "it resumed a session or shows no certificate")
        if not self.pin.ca and shown not in self.pin.sha256:
            raise CertificateRefused(self.pin, shown)


def pinned_context(pin: Pin) -> PinnedContext:
    """Raises ssl.SSLError where the pinned CA is no certificate."""
    context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.pin = pin
    context.options |= ssl.OP_NO_RENEGOTIATION  # another certificate in the middle of a connection
    if pin.ca:
        context.hostname_checks_common_name = False  # only names that the CA vouches for as names of a host
        context.load_verify_locations(cadata=pin.ca)
        # The pinned CA is the end of the chain, whether or not another CA issued it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # Newer Pythons refuse certificates of private CAs that leave out extensions, as vCenter's own CA does.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server showed that was not judged yet."""

    leaf: bytes  # DER
    bundle: bytes = b""  # what it publishes as its CAs; empty where it publishes nothing


def look_at_server(host: str, port: int, *, bundle: bool = True) -> Seen:
    """Its certificate, and over that very connection what it publishes as its CAs. No credential is sent.

    Without `bundle` not one byte is sent. Raises OSError where there is no TLS server.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection(host, port, timeout=SECONDS, context=context)
    try:
        connection.connect()
        connection.auto_open = 0  # a request on any other connection would be of another server
        leaf = connection.sock.getpeercert(binary_form=True)
        if not leaf:
            raise ssl.SSLError("the server shows no certificate")
        return Seen(leaf, _download(connection) if bundle else b"")
    finally:
        connection.close()


def _download(connection: HTTPSConnection) -> bytes:
    """The published bundle, within bounds of size and time; empty where there is none."""
    # A time limit of the socket is per read: a server that sends a byte now and then would hold us for ever.
    limit = threading.Timer(SECONDS, connection.sock.shutdown, (socket.SHUT_RDWR,))
    limit.daemon = True
    limit.start()
    try:
        connection.request("GET", PUBLISHED, headers={"Accept": "application/zip"})
        answer = connection.getresponse()
        data = answer.read(BUNDLE_BYTES + 1) if answer.status == 200 else b""
        return data if len(data) <= BUNDLE_BYTES else b""
    except (OSError, HTTPException):
        return b""  # it serves SOAP but not this, or breaks off: then its certificate itself is pinned
    finally:
        limit.cancel()


def choose_pin(host: str, port: int, seen: Seen) -> Pin:
    """The CA that issued what was seen, if OpenSSL accepts it with that CA for our host name; else the fingerprint.

    Tried by a handshake with the very context that later connections use; nothing is sent. Raises OSError where the
    server cannot be reached a second time: then nothing is known about the CA.
    """
    shown = (fingerprint_of(seen.leaf),)
    authorities = issuing_authorities(seen.leaf, seen.bundle)
    if not authorities:
        return Pin(shown)
    by_authority = Pin(shown, authorities)
    try:
        with (
            socket.create_connection((host, port), SECONDS) as raw,
            pinned_context(by_authority).wrap_socket(raw, server_hostname=host) as connected,
        ):
            same = connected.getpeercert(binary_form=True) == seen.leaf
    except ssl.SSLCertVerificationError:
        same = False
    return by_authority if same else Pin(shown)


def refused_certificate(host: str, port: int, pin: Pin, error: ssl.SSLCertVerificationError) -> CertificateRefused:
    """The refusal with the fingerprint of what the server shows. OpenSSL does not tell it, so it is looked at again."""
    if isinstance(error, CertificateRefused):
        return error
    try:
        shown = fingerprint_of(look_at_server(host, port, bundle=False).leaf)
    except OSError:
        shown = ""
    return CertificateRefused(pin, shown, error.verify_message)

"""TLS towards an API server: which CA we trust and which certificate we show, re-read when their files change."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hostler.errors import Complaint
from hostler.kube.kubeconfig import Material, wrong

log = structlog.get_logger("hostler.tls")


class Tls:
    """Makes SSL contexts. The same context is given out until something changes: connections are pooled by it."""

    def __init__(self, *, authority: Material | None, pair: tuple[Material, Material] | None, verify: bool) -> None:
        self._authority, self._pair, self._verify = authority, pair, verify
        self._stamp: object = None
        self._context: ssl.SSLContext | None = None
        self._shown: tuple[bytes, bytes] | None = None

    def context(self, shown: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """The context now. `shown` is a certificate and key from an exec plugin; it replaces the file's."""
        stamp = tuple(part.stamp() for part in (self._authority, *(self._pair or ())) if part is not None)
        if self._context is not None and stamp == self._stamp and shown == self._shown:
            return self._context
        try:
            made = self._make(shown)
        except Complaint as complaint:
            if self._context is None:
                raise
            # Files are replaced one after the other, so for a moment they may not fit together: keep what worked.
            log.warning("changed TLS files are not usable yet; keeping the earlier ones", error=complaint.sentence)
            return self._context
        self._context, self._stamp, self._shown = made, stamp, shown
        return made

    def _make(self, shown: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # As Go does: a CA file may hold an intermediate, and that is enough.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self._authority is not None:
            load_authority(context, self._authority)
        else:
            context.load_default_certs()
        if shown is not None:
            load_pair(context, *shown, about="the certificate from the exec plugin")
        elif self._pair is not None:
            certificate, key = self._pair
            load_pair(context, certificate.read(), key.read(), about=certificate.field)
        return context


def load_authority(context: ssl.SSLContext, authority: Material) -> None:
    pem = authority.read()
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise wrong(
            f"{authority.field} is not a PEM certificate", "It must begin with -----BEGIN CERTIFICATE-----."
        ) from error


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, *, about: str) -> None:
    """Check first, so that each mistake has its own sentence; OpenSSL has one word for most of them."""
    check_pair(certificate, key, about, datetime.now(UTC))
    with _as_file(certificate + b"\n" + key) as path:
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, OSError) as error:
            raise wrong(f"{about}: OpenSSL does not accept the certificate and key ({error})") from error


def check_pair(certificate: bytes, key: bytes, about: str, now: datetime) -> None:
    # Imported here: in a cluster we show a token and no certificate, and need not carry ten megabytes for it.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        read = x509.load_pem_x509_certificates(certificate)[0]
    except (ValueError, IndexError) as error:
        raise wrong(f"{about} is not a PEM certificate", "It must begin with -----BEGIN CERTIFICATE-----.") from error
    try:
        private = load_pem_private_key(key, None)
    except TypeError as error:
        raise wrong(f"{about}: its key is encrypted with a passphrase", "Store the key without one.") from error
    except ValueError as error:
        raise wrong(f"{about}: its key (client-key) is not a PEM private key") from error
    public = read.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != public:
        raise wrong(f"{about}: the client certificate and the client key do not belong together", "Copy both again.")
    if now > read.not_valid_after_utc:
        raise wrong(
            f"{about}: the client certificate expired on {read.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
            "Get a new kubeconfig or renew the certificate.",
        )
    if now < read.not_valid_before_utc:
        raise wrong(
            f"{about}: the client certificate is not valid before {read.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "Is this machine's clock right?",
        )


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Python's ssl takes certificates only from files. Memory is one too on Linux, so the key touches no disk."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        memory = os.memfd_create("hostler-pair")
        try:
            os.write(memory, data)
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
        return
    handle, name = tempfile.mkstemp()  # made with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        yield name
    finally:
        Path(name).unlink()

"""TLS towards an API server: which CA we trust and which certificate we show, re-read when their files change."""

from __future__ import annotations

import binascii
import os
import re
import ssl
import tempfile
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hostler.errors import Complaint
from hostler.kube.kubeconfig import Material, wrong

log = structlog.get_logger("hostler.tls")

# asyncio fills a buffer for every TLS connection with zeros, a quarter of a megabyte by default, and each watched kind
# has a connection of its own. A TLS record holds 16 KiB; reading goes on as long as there is more.
BUFFER = 128 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN (X509 |TRUSTED |)CERTIFICATE-----(.+?)-----END", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags of ASN.1


def small_buffers() -> None:
    """Once per process that keeps many connections."""
    sslproto.SSLProtocol.max_size = BUFFER


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
    """Each mistake has its own sentence; OpenSSL has one word for most of them, so what it refuses is looked into."""
    try:
        load_chain(context, certificate, key)
    except (ssl.SSLError, OSError, ValueError) as error:
        look_into(certificate, key, about)
        raise wrong(f"{about}: OpenSSL does not accept the certificate and key ({error})") from error
    check_validity(certificate, about, datetime.now(UTC))


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Raises what OpenSSL has to say of it."""
    with _as_file(certificate + b"\n" + key) as path:
        context.load_cert_chain(path, password=lambda: "")  # else OpenSSL asks on the terminal for one


def look_into(certificate: bytes, key: bytes, about: str) -> None:
    """What is wrong with a pair that OpenSSL refused."""
    # Imported here: a pair that is right, and a token, need not carry ten megabytes for it.
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


def check_validity(certificate: bytes, about: str, now: datetime) -> None:
    try:
        begin, end = validity(certificate)
    except (IndexError, ValueError):
        return  # OpenSSL reads more forms than we do: then the server says whether it is valid
    if now > end:
        raise wrong(
            f"{about}: the client certificate expired on {end:%Y-%m-%d %H:%M} UTC",
            "Get a new kubeconfig or renew the certificate.",
        )
    if now < begin:
        raise wrong(
            f"{about}: the client certificate is not valid before {begin:%Y-%m-%d %H:%M} UTC",
            "Is this machine's clock right?",
        )


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """From when until when the first certificate of a PEM that OpenSSL has accepted is valid (RFC 5280, 4.1)."""
    armoured = _CERTIFICATE.search(certificate)
    if armoured is None:
        raise ValueError("no certificate under the names that OpenSSL reads")
    (_, whole), *_ = _elements(binascii.a2b_base64(armoured[2]))
    (_, signed), *_ = _elements(whole)
    # Its version, which may be left out, has a tag of its own; then number, algorithm and issuer come before.
    fields = [content for tag, content in _elements(signed) if tag != _VERSION]
    (first, begin), (last, end) = _elements(fields[3])
    return _time(first, begin), _time(last, end)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER sequence: tag and content."""
    place = 0
    while place < len(data):
        tag, size = data[place], data[place + 1]
        place += 2
        if size > 0x7F:  # then it says how many bytes the size has
            start, place = place, place + (size & 0x7F)
            size = int.from_bytes(data[start:place], "big")
        yield tag, data[place : place + size]
        place += size


def _time(tag: int, text: bytes) -> datetime:
    """UTCTime has two digits for the year, from 1950 to 2049."""
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = f"{'19' if digits >= '50' else '20'}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


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

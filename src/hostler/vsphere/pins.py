"""What a vCenter is recognised by: the CA that issued its certificate, or the certificate itself. Pure.

A pin is compared on every connection before anything is sent (`pinned_tls`). The record of a pin in a Secret is read
strictly: what cannot be read is not "nothing trusted yet".
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hostler.fingerprints import fingerprint_of, read_fingerprint

# Bounds of the published bundle. A vCenter publishes about twenty files of some kilobytes each.
BUNDLE_BYTES, BUNDLE_FILES, FILE_BYTES = 1 << 20, 300, 1 << 18
LONGEST_NAME = 300  # of a subject or an issuer: a server that is not trusted yet chose it
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Pin:
    """With `ca` (PEM), a certificate for our host name that one of these CAs issued passes; without, only `sha256`.

    `sha256` are fingerprints of server certificates. With `ca` they say which certificate was seen first.
    """

    sha256: tuple[str, ...]
    ca: str = ""

    def __str__(self) -> str:
        shown = " or ".join(self.sha256) or "none"
        return f"any certificate of its CA (first seen: SHA-256 {shown})" if self.ca else f"SHA-256 {shown}"


class Entry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One vCenter in the Secret. `by` is who accepted it; the rest beyond `sha256` and `ca` is for people."""

    vcenter: str
    sha256: str
    ca: str = ""
    subject: str = ""
    issuer: str = ""
    not_after: str = ""
    by: str = ""
    since: str = ""

    @property
    def pin(self) -> Pin:
        return Pin((self.sha256,), self.ca)


class NotAnEntry(ValueError):
    """The text is no entry of ours; the message says what is wrong with it."""


def entry_key(host: str, port: int) -> str:
    """The key of a vCenter in the Secret; two vCenters never share one. A Secret's keys have few characters."""
    plain = re.sub(r"[^a-z0-9.-]", lambda found: f"_{ord(found[0]):02x}", host.lower(), flags=re.ASCII)
    return plain if port == 443 else f"{plain}__{port}"


def write_entry(entry: Entry) -> bytes:
    return msgspec.json.encode(entry)


def read_entry(data: bytes, vcenter: str = "") -> Entry:
    """Raises NotAnEntry. With `vcenter`, an entry that was copied from another one is not this one's."""
    try:
        entry = msgspec.json.decode(data, type=Entry)
        fingerprint = read_fingerprint(entry.sha256)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotAnEntry(f"it is not an entry that Hostler wrote ({error})") from error
    except ValueError as error:
        raise NotAnEntry(f'its sha256 "{str(error)[:80]}" is not a SHA-256 fingerprint') from error
    if vcenter and entry.vcenter.lower() != vcenter.lower():
        raise NotAnEntry(f'it is about "{entry.vcenter[:80]}"')
    if entry.ca and not _is_pem(entry.ca):
        raise NotAnEntry("its ca is not a list of certificates in PEM form")
    return msgspec.structs.replace(entry, sha256=fingerprint)


def _is_pem(text: str) -> bool:
    from cryptography import x509

    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        return False


def issuing_authorities(leaf: bytes, bundle: bytes) -> str:
    """Of the CAs in a published bundle (a zip of PEM files) those that issued this certificate (DER), in PEM form.

    Only the direct issuer counts: it is the narrowest trust under which a renewal passes. That the certificate is also
    valid now and for our host name is checked by OpenSSL afterwards, with what this returns (`pinned_tls`).
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        server = x509.load_der_x509_certificate(leaf)
    except ValueError:
        return ""
    found: dict[bytes, str] = {}
    for file in _files(bundle):
        for pem in _certificates(file):
            try:
                issuer = x509.load_pem_x509_certificate(pem)
                if issuer == server or not _may_issue(issuer):
                    continue
                server.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
                continue  # another CA, a key of an unknown kind, or no certificate at all
            except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
                continue  # extensions that cannot be read
            found[issuer.public_bytes(Encoding.DER)] = issuer.public_bytes(Encoding.PEM).decode()
    return "".join(found[der] for der in sorted(found))


def _may_issue(certificate: object) -> bool:
    """It is a CA by its own basic constraints and, where it has one, its key usage."""
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid


def _files(bundle: bytes) -> Iterator[bytes]:
    """What is in the zip, within bounds: a server that we do not trust yet made it."""
    left = BUNDLE_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            for info in archive.infolist()[:BUNDLE_FILES]:
                if info.is_dir() or info.file_size > FILE_BYTES:
                    continue
                with archive.open(info) as file:
                    data = file.read(min(FILE_BYTES, left) + 1)
                left -= len(data)
                if left < 0:
                    return
                yield data
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
        return  # no zip, a broken one, or one with a password or an unknown compression


def _certificates(text: bytes) -> Iterator[bytes]:
    yield from _PEM.findall(text)


@dataclass(frozen=True, slots=True)
class Described:
    """A certificate in words, for who has to judge it."""

    sha256: str
    subject: str
    issuer: str
    not_before: str
    not_after: str


def describe_certificate(der: bytes) -> Described:
    """What cannot be read is empty: the fingerprint alone identifies it."""
    from cryptography import x509

    shown = fingerprint_of(der)
    try:
        found = x509.load_der_x509_certificate(der)
        dates = (one.strftime("%Y-%m-%dT%H:%M:%SZ") for one in (found.not_valid_before_utc, found.not_valid_after_utc))
        subject, issuer = (one.rfc4514_string()[:LONGEST_NAME] for one in (found.subject, found.issuer))
        return Described(shown, subject, issuer, *dates)
    except ValueError:
        return Described(shown, "", "", "", "")

"""The certificates of a webhook server: what the Secret holds, what is due, and how a new CA with its leaf is made.

A CA signs one server certificate, and its key is thrown away: whoever reads the Secret cannot sign another. A rotation
has two halves. First the next pair is stored beside the one in use, and both CAs go into every `caBundle`. Only when
those have been in place for a while does the next pair come into use; the CA before it stays in the bundles, for a
replica that has not read the Secret yet. So at no moment does a server show a certificate that an API server does not
trust.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address

from hostler.instant import Instant
from hostler.kube import tls

DAYS, DUE_DAYS = 90, 30  # how long a certificate lasts; how long before its end the next one is made
_CA, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"
_PREVIOUS, _NEXT = "ca-previous.crt", "next-"


@dataclass(frozen=True, slots=True)
class Pair:
    """A server certificate with its key, and the CA that it is trusted by. PEM."""

    authority: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """What the Secret holds. `previous`: the CA of the certificate that was in use before."""

    current: Pair | None = None
    next: Pair | None = None
    previous: bytes = b""


class Step(StrEnum):
    MAKE = "make"  # there is none that could be used: one is needed at once
    PREPARE = "prepare"  # store the next one beside it
    PROMOTE = "promote"  # the next one comes into use
    KEEP = "keep"


def read_kept(data: Mapping[str, bytes]) -> Kept:
    return Kept(_pair(data, ""), _pair(data, _NEXT), data.get(_PREVIOUS, b""))


def write_kept(kept: Kept) -> dict[str, bytes | None]:
    """The fields of the Secret; None: it has none of that name."""
    return {
        **_fields(kept.current, ""), **_fields(kept.next, _NEXT), _PREVIOUS: kept.previous or None,
    }  # fmt: skip


def _pair(data: Mapping[str, bytes], prefix: str) -> Pair | None:
    found = [data.get(prefix + name, b"") for name in (_CA, _CERTIFICATE, _KEY)]
    return Pair(*found) if all(found) else None


def _fields(pair: Pair | None, prefix: str) -> dict[str, bytes | None]:
    values = (pair.authority, pair.certificate, pair.key) if pair is not None else (None, None, None)
    return {prefix + name: value for name, value in zip((_CA, _CERTIFICATE, _KEY), values, strict=True)}


def decide_step(kept: Kept, *, trusted: bool, now: Instant) -> Step:
    """`trusted`: every CA of the Secret has been in every bundle for long enough."""
    if not is_usable(kept.current, now):
        return Step.MAKE
    if kept.next is not None and is_usable(kept.next, now):
        return Step.PROMOTE if trusted else Step.KEEP
    assert kept.current is not None
    return Step.PREPARE if expiry_of(kept.current.certificate) - now < DUE_DAYS * 86_400 else Step.KEEP


def promote_next(kept: Kept) -> Kept:
    previous = kept.current.authority if kept.current is not None else b""
    return Kept(current=kept.next, previous=previous)


def bundle_authorities(kept: Kept, now: Instant) -> bytes:
    """Every CA that a server may be trusted by, the newest first; one that has expired is left out."""
    pairs = [pair.authority for pair in (kept.next, kept.current) if pair is not None]
    found = dict.fromkeys(
        authority.strip() + b"\n" for authority in (*pairs, kept.previous) if expiry_of(authority) > now
    )
    return b"".join(found)


def is_usable(pair: Pair | None, now: Instant) -> bool:
    return pair is not None and expiry_of(pair.certificate) > now and load_pair(pair) is not None


def expiry_of(certificate: bytes) -> float:
    """When the first certificate ends, in seconds since 1970; 0 where there is none."""
    try:
        return tls.validity(certificate)[1].timestamp()
    except (IndexError, ValueError):
        return 0.0


def load_pair(pair: Pair) -> ssl.SSLContext | None:
    """A context that shows this certificate; None: it cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        tls.load_chain(context, pair.certificate, pair.key)
    except (ssl.SSLError, OSError, ValueError):
        return None
    return context


def make_pair(names: Sequence[str], now: Instant, days: float = DAYS) -> Pair:
    """A new CA and a certificate of it for a server of these names, and of loopback for an API server beside it."""
    # Only the leader makes one, rarely: the others need not carry ten megabytes for it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    begin = datetime.fromtimestamp(now, UTC)
    # An hour back: clocks of API servers may be behind ours.
    since, until = begin - timedelta(hours=1), begin + timedelta(days=days)

    def build(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
        )

    def usage(*, signs: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=True, key_cert_sign=signs, crl_sign=signs, key_encipherment=False,
            content_commitment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", "::1")]
    # Of its own name each: an API server must not try the key of another CA of the same name.
    issuer = f"hostler-webhook-ca {x509.random_serial_number():x}"[:60]
    authority = (
        build(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        build(names[0][:60], issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*addresses, *map(x509.DNSName, names)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(authority.public_bytes(pem), leaf.public_bytes(pem), private)

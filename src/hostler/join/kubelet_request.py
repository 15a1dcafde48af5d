"""Is a request exactly what a kubelet sends, and does it come from a user who may send it? Pure.

Stricter than the Kubernetes signers where a real kubelet never differs: the text must be what the parsed request is
written as, so that nothing can hide in what one parser reads and another skips. Anything else is a reason. The API
server writes a request's user and groups; the client cannot choose them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hostler.host.conditions import names
from hostler.join.model import CLIENT, SERVING, Outcome, Policy, RequestSpec, Rule, RuleName, fails, holds

PREFIX, GROUP = "system:node:", "system:nodes"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NODE_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
# ASCII: else the Kelvin sign would be a k.
_DNS = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE | re.ASCII)
_LIKE_AN_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}\.?")
_USAGES = {
    CLIENT: ({"digital signature", "client auth"}, {"digital signature", "key encipherment", "client auth"}),
    SERVING: ({"digital signature", "server auth"}, {"digital signature", "key encipherment", "server auth"}),
}
_HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
LARGEST = 16 * 1024
SMALLEST_RSA = 2048


@dataclass(frozen=True, slots=True)
class Shape:
    """What a well-made request asks for: names in lower case without the last dot, addresses in one spelling."""

    node: str
    dns: frozenset[str] = frozenset()
    ips: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Misshapen:
    why: str


def shape_of(spec: RequestSpec) -> Shape | Misshapen:
    """The shape of a client or serving request of a kubelet, or what is wrong with it."""
    if spec.signer_name not in _USAGES:
        return Misshapen(f"its signer is {spec.signer_name or 'not named'}, which is not a kubelet's")
    if len(set(spec.usages)) != len(spec.usages) or set(spec.usages) not in _USAGES[spec.signer_name]:
        return Misshapen(f"its usages ({', '.join(spec.usages) or 'none'}) are not those of a kubelet")
    try:
        return _read(spec)
    except Exception as error:  # noqa: BLE001
        # A stranger's bytes: whatever the parser raises on them is a wrong shape, and must not stop the other requests.
        return Misshapen(f"its request cannot be read: {error or type(error).__name__}")


def _read(spec: RequestSpec) -> Shape | Misshapen:
    if len(spec.request) > LARGEST:
        return Misshapen(f"its request is larger than {LARGEST} bytes")
    if not spec.request.startswith(b"-----BEGIN CERTIFICATE REQUEST-----\n"):
        return Misshapen("its request is not PEM with the label CERTIFICATE REQUEST")
    request = x509.load_pem_x509_csr(spec.request)
    written = request.public_bytes(Encoding.PEM)
    if spec.request not in (written, written.rstrip(b"\n")):
        return Misshapen("its request holds more than the request itself, or is written in an unusual way")
    if not request.public_bytes(Encoding.DER).endswith(b"\x00" + request.signature):
        # The count of unused bits before the signature: not signed, and read differently by different parsers.
        return Misshapen("its signature is written in an unusual way")
    key = _wrong_key(request)
    if key:
        return Misshapen(key)
    if not request.is_signature_valid:
        return Misshapen("its request is not signed by its own key")
    name = _subject(request.subject)
    if isinstance(name, Misshapen):
        return name
    names = _names(request, spec.signer_name == SERVING)
    return names if isinstance(names, Misshapen) else Shape(name, *names)


def _wrong_key(request: x509.CertificateSigningRequest) -> str:
    key = request.public_key()
    match key:
        case rsa.RSAPublicKey() if key.key_size < SMALLEST_RSA:
            return f"its RSA key has {key.key_size} bits, fewer than {SMALLEST_RSA}"
        case ec.EllipticCurvePublicKey() if not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1):
            return f"its key is on the curve {key.curve.name}, which no kubelet uses"
        case rsa.RSAPublicKey() | ec.EllipticCurvePublicKey() | ed25519.Ed25519PublicKey():
            pass
        case _:
            return "its key is of a kind no kubelet uses"
    digest = request.signature_hash_algorithm
    if not isinstance(key, ed25519.Ed25519PublicKey) and not isinstance(digest, _HASHES):
        return f"it is signed with {digest.name if digest else 'no hash'}, which is too weak"
    return ""


def _subject(subject: x509.Name) -> str | Misshapen:
    """The node's name of `O=system:nodes, CN=system:node:NAME`, and nothing else in it."""
    attributes = list(subject)
    if len(attributes) != 2 or len(subject.rdns) != 2:
        return Misshapen("its subject is not exactly one organisation and one common name")
    by_type = {attribute.oid: attribute.value for attribute in attributes}
    if by_type.get(NameOID.ORGANIZATION_NAME) != GROUP:
        return Misshapen(f"its organisation is not exactly {GROUP}")
    common = by_type.get(NameOID.COMMON_NAME)
    if not isinstance(common, str) or not common.startswith(PREFIX):
        return Misshapen(f"its common name does not start with {PREFIX}")
    name = common.removeprefix(PREFIX)
    if not NODE_NAME.fullmatch(name):
        return Misshapen("its common name does not end in a name a node can have")
    return name


def _names(request: x509.CertificateSigningRequest, serving: bool) -> tuple[frozenset[str], frozenset[str]] | Misshapen:
    attributes = [attribute.oid for attribute in request.attributes]
    extensions = list(request.extensions)
    if not serving:
        if attributes or extensions:
            return Misshapen("it asks for names or extensions, which a node's client certificate does not have")
        return frozenset(), frozenset()
    if attributes != [_EXTENSION_REQUEST] or len(extensions) != 1:
        return Misshapen("it asks for something other than names and addresses, or for none")
    names = extensions[0].value
    if not isinstance(names, x509.SubjectAlternativeName):
        return Misshapen("it asks for an extension that is not the list of names and addresses")
    dns, ips = [], []
    for name in names:
        if isinstance(name, x509.DNSName) and _LIKE_AN_ADDRESS.fullmatch(name.value):
            # Some clients compare it with an address; a kubelet writes addresses as such.
            return Misshapen(f"it writes an address as a DNS name: {name.value}")
        if isinstance(name, x509.DNSName) and _DNS.fullmatch(name.value):
            dns.append(spelled(name.value))
        elif isinstance(name, x509.IPAddress) and isinstance(name.value, IPv4Address | IPv6Address):
            if getattr(name.value, "ipv4_mapped", None) is not None:
                # ::ffff:10.0.0.2 is valid for 10.0.0.2 where Go compares; no kubelet writes it so.
                return Misshapen(f"it writes an IPv4 address as an IPv6 one: {name.value}")
            ips.append(str(name.value))
        else:
            return Misshapen(f"it asks for a name that is neither a DNS name nor an address: {str(name)[:80]}")
    if not dns and not ips:
        return Misshapen("it names neither a DNS name nor an address")
    if len(set(dns)) != len(dns) or len(set(ips)) != len(ips):
        return Misshapen("it names something twice")
    return frozenset(dns), frozenset(ips)


def spelled(name: str) -> str:
    """A DNS name in one spelling: lower case, without the last dot."""
    return name.lower().removesuffix(".")


_EXTENSION_REQUEST = x509.ObjectIdentifier("1.2.840.113549.1.9.14")

AUTHENTICATED = "system:authenticated"
ACCOUNT, TOKEN_USER, TOKEN_GROUP = "system:serviceaccount:", "system:bootstrap:", "system:bootstrappers"
_TOKEN = re.compile(rf"{TOKEN_USER}[a-z0-9]{{6}}")


def requester_rule(spec: RequestSpec, node: str, policy: Policy) -> Rule:
    """A serving certificate is asked for by the node itself, a client certificate by a bootstrapper."""
    if spec.signer_name == SERVING:
        return _itself(spec, f"{PREFIX}{node}", policy)
    return _bootstrapper(spec, policy)


def counts_for_flood(spec: RequestSpec, policy: Policy) -> bool:
    """Whether a pending request could be a node's. Others cannot keep nodes out by making many."""
    node = spec.username.removeprefix(PREFIX) if spec.username.startswith(PREFIX) else ""
    return requester_rule(spec, node, policy).outcome is Outcome.HOLDS


def _itself(spec: RequestSpec, node: str, policy: Policy) -> Rule:
    if not policy.serving:
        return fails(RuleName.REQUESTER, "serving certificates are not approved here (HOSTLER_JOIN_SERVING)")
    if spec.username != node or sorted(spec.groups) != sorted((GROUP, AUTHENTICATED)):
        return fails(
            RuleName.REQUESTER, f"{spec.username} asks for a serving certificate of {node}; only that node itself may"
        )
    return holds(RuleName.REQUESTER, f"{spec.username} asks for itself")


def _bootstrapper(spec: RequestSpec, policy: Policy) -> Rule:
    user, groups = spec.username, sorted(spec.groups)
    if user.startswith(PREFIX):
        return fails(RuleName.REQUESTER, f"{user} renews its client certificate, which the cluster's own approver does")
    for bootstrapper in policy.bootstrappers:
        if bootstrapper.startswith(ACCOUNT) and user == bootstrapper:
            space = bootstrapper.removeprefix(ACCOUNT).partition(":")[0]
            wanted = sorted(("system:serviceaccounts", f"system:serviceaccounts:{space}", AUTHENTICATED))
            if groups == wanted:
                return holds(RuleName.REQUESTER, f"{user} is a bootstrapper")
            return fails(
                RuleName.REQUESTER, f"{user} comes with other groups than a service account has: {names(groups)}"
            )
        if bootstrapper.startswith(TOKEN_GROUP) and _by_token(user, groups, bootstrapper):
            return holds(RuleName.REQUESTER, f"{user} has a bootstrap token of the group {bootstrapper}")
    return fails(RuleName.REQUESTER, f"{user or 'a request without a user'} is not one of HOSTLER_JOIN_BOOTSTRAPPERS")


def _by_token(user: str, groups: Sequence[str], wanted: str) -> bool:
    """A bootstrap token gives `system:bootstrap:ID` and groups below system:bootstrappers, and nothing else can."""
    known = {AUTHENTICATED, TOKEN_GROUP}
    return (
        _TOKEN.fullmatch(user) is not None
        and len(set(groups)) == len(groups)
        and known <= set(groups)
        and wanted in groups
        and all(group in known or group.startswith(f"{TOKEN_GROUP}:") for group in groups)
    )

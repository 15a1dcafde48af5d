"""Real certificate requests with real keys, as kubelets make them and as they do not; facts around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hostler.host.facts import Known
from hostler.instant import iso
from hostler.join.decide import judge_request
from hostler.join.model import (
    CLIENT,
    SERVING,
    Crowd,
    Facts,
    Invitation,
    Outcome,
    Policy,
    RequestSpec,
    SigningRequest,
    Verdict,
)
from hostler.join.observe import owners_of
from hostler.kube.records import Metadata, Node, NodeAddress, NodeStatus

NOW = 1_000_000.0
ACCOUNT = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
ACCOUNT_GROUPS = (
    "system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated",
)  # fmt: skip
TOKEN_GROUP = "system:bootstrappers:kubeadm:default-node-token"
NODE_GROUPS = ("system:nodes", "system:authenticated")
CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")
POLICY = Policy((ACCOUNT, TOKEN_GROUP))
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@cache
def key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def pem(
    name: str = "worker-1",
    *,
    organisations: Sequence[str] = ("system:nodes",),
    common: str = "",
    more: Sequence[tuple[x509.ObjectIdentifier, str]] = (),
    sans: Sequence[x509.GeneralName] = (),
    extensions: Sequence[x509.ExtensionType] = (),
    key: Key | None = None,
    digest: Any = None,
) -> bytes:
    """A request signed by its own key. Go's order: organisation first."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common or f"system:node:{name}"))
    attributes += [x509.NameAttribute(oid, value) for oid, value in more]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(sans)), critical=False)
    for one in extensions:
        builder = builder.add_extension(one, critical=False)
    return builder.sign(key or globals()["key"](), digest or hashes.SHA256()).public_bytes(Encoding.PEM)


def names_of(*names: str) -> list[x509.GeneralName]:
    return [_name(one) for one in names]


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def client(node: str = "worker-1", *, csr: str = "csr-1", made: float = NOW - 60, **spec: Any) -> SigningRequest:
    """As the OpenShift bootstrapper asks for a new node."""
    known = {
        "request": spec.pop("request", None) or pem(node),
        "signer_name": CLIENT,
        "usages": CLIENT_USAGES,
        "username": ACCOUNT,
        "groups": ACCOUNT_GROUPS,
    }
    metadata = Metadata(name=csr, uid=f"uid-{csr}", resource_version="1", creation_timestamp=iso(made))
    return SigningRequest(metadata=metadata, spec=RequestSpec(**{**known, **spec}))


def serving(node: str = "worker-1", *sans: str, csr: str = "csr-2", **spec: Any) -> SigningRequest:
    """As a kubelet asks for its serving certificate."""
    known = {
        "request": pem(node, sans=names_of(*(sans or (node, "10.0.0.1")))),
        "signer_name": SERVING,
        "usages": SERVING_USAGES,
        "username": f"system:node:{node}",
        "groups": NODE_GROUPS,
    }
    return client(node, csr=csr, **{**known, **spec})


def invited(name: str = "worker-1", **more: Any) -> Invitation:
    known = {"source": f"BareMetalHost metal/{name}", "kind": "baremetalhosts.metal3.io", "since": NOW - 600}
    return Invitation(name, **{**known, **more})


def node(name: str = "worker-1", *addresses: str) -> Node:
    given = [NodeAddress(type="InternalIP", address=one) for one in addresses or ("10.0.0.1",)]
    given.append(NodeAddress(type="Hostname", address=name))
    return Node(metadata=Metadata(name=name), status=NodeStatus(addresses=tuple(given)))


def facts(*nodes: Node, invitations: Sequence[Invitation] = (invited(),), **more: Any) -> Facts:
    by_name: dict[str, tuple[Invitation, ...]] = {}
    for one in invitations:
        by_name[one.name] = (*by_name.get(one.name, ()), one)
    known: Mapping[str, Any] = {
        "nodes": Known({one.metadata.name: one for one in nodes}, NOW),
        "owners": owners_of(nodes),
        "invited": Known(by_name, NOW),
        "used": Known({}, NOW),
        "crowd": Known(Crowd(1, 100), NOW),
    }
    return Facts(**{**known, **more})


def judged(request: SigningRequest, known: Facts | None = None, **policy: Any) -> Verdict:
    return judge_request(request, known or facts(), dataclasses.replace(POLICY, **policy), NOW)


def failed(verdict: Verdict) -> set[str]:
    return {rule.name for rule in verdict.rules if rule.outcome is Outcome.FAILS}


# -- requests no kubelet makes: what differs, and how the reason begins

_SUBJECT = "its subject is not exactly one organisation and one common name"
_NODE_NAME = "its common name does not end in a name a node can have"
_NO_NAMES = "it asks for names or extensions, which a node's client certificate does not have"
_UNUSUAL = "its request holds more than the request itself, or is written in an unusual way"
_NOT_PEM = "its request is not PEM with the label CERTIFICATE REQUEST"
_USAGES = "its usages"
_NEITHER = "it asks for a name that is neither a DNS name nor an address"
_ONLY_ITSELF = "asks for a serving certificate of system:node:"


def _another_signature() -> bytes:
    """The signature of another request of the same key: well written, and not of this one."""
    request = x509.load_pem_x509_csr(pem())
    other = request
    while len(other.signature) != len(request.signature) or other is request:
        other = x509.load_pem_x509_csr(pem("worker-2"))
    signed = request.public_bytes(Encoding.DER)[: -len(request.signature)] + other.signature
    return x509.load_der_x509_csr(signed).public_bytes(Encoding.PEM)


def _one_long_line(given: bytes) -> bytes:
    first, *middle, last = given.splitlines()
    return b"\n".join([first, b"".join(middle), last, b""])


def _written(name: str) -> x509.UnrecognizedExtension:
    """A list of names with one DNS name that no library writes: the sign for Kelvin is a k in small letters."""
    text = name.encode()
    read = bytes([0x30, len(text) + 2, 0x82, len(text)]) + text
    return x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, read)


WRONG_CLIENTS: dict[str, tuple[dict[str, Any], str]] = {
    "two organisations": ({"request": pem(organisations=("system:nodes", "system:masters"))}, _SUBJECT),
    "another organisation": ({"request": pem(organisations=("system:masters",))}, "its organisation is not exactly"),
    "no organisation": ({"request": pem(organisations=())}, _SUBJECT),
    "a unit beside": ({"request": pem(more=[(NameOID.ORGANIZATIONAL_UNIT_NAME, "x")])}, _SUBJECT),
    "two common names": ({"request": pem(more=[(NameOID.COMMON_NAME, "system:node:other")])}, _SUBJECT),
    "a common name of a person": ({"request": pem(common="alice")}, "its common name does not start with"),
    "an empty name": ({"request": pem(common="system:node:")}, _NODE_NAME),
    "a name with a colon": ({"request": pem(common="system:node:a:b")}, _NODE_NAME),
    "a name in capitals": ({"request": pem(common="system:node:Worker-1")}, _NODE_NAME),
    "a DNS name": ({"request": pem(sans=names_of("worker-1"))}, _NO_NAMES),
    "an address": ({"request": pem(sans=names_of("10.0.0.1"))}, _NO_NAMES),
    "an e-mail address": ({"request": pem(sans=[x509.RFC822Name("a@example.org")])}, _NO_NAMES),
    "a URI": ({"request": pem(sans=[x509.UniformResourceIdentifier("spiffe://x/y")])}, _NO_NAMES),
    "a CA": ({"request": pem(extensions=[x509.BasicConstraints(ca=True, path_length=None)])}, _NO_NAMES),
    "a small key": ({"request": pem(key=rsa_key(1024))}, "its RSA key has 1024 bits"),
    "a key on an odd curve": ({"request": pem(key=ec.generate_private_key(ec.SECP256K1()))}, "its key is on the curve"),
    "a weak hash": ({"request": pem(key=rsa_key(2048), digest=hashes.SHA224())}, "it is signed with sha224"),
    "another's signature": ({"request": _another_signature()}, "its request is not signed by its own key"),
    "nothing": ({"request": b" "}, _NOT_PEM),
    "text before": ({"request": b"x\n" + pem()}, _NOT_PEM),
    "text after": ({"request": pem() + b"x"}, _UNUSUAL),
    "twice": ({"request": pem() + pem()}, _UNUSUAL),
    "another label": ({"request": pem().replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST")}, _NOT_PEM),
    "a certificate's label": ({"request": pem().replace(b"CERTIFICATE REQUEST", b"CERTIFICATE")}, _NOT_PEM),
    "Windows line ends": ({"request": pem().replace(b"\n", b"\r\n")}, _NOT_PEM),
    "one long line": ({"request": _one_long_line(pem())}, _UNUSUAL),
    "very long": ({"request": pem() + b" " * 20_000}, "its request is larger than"),
    "server auth": ({"usages": ("digital signature", "server auth")}, _USAGES),
    "cert sign": ({"usages": ("digital signature", "client auth", "cert sign")}, _USAGES),
    "too few usages": ({"usages": ("client auth",)}, _USAGES),
    "a usage twice": ({"usages": ("digital signature", "client auth", "client auth")}, _USAGES),
    "any": ({"usages": ("any",)}, _USAGES),
    "no usages": ({"usages": ()}, _USAGES),
}

WRONG_SERVING: dict[str, tuple[dict[str, Any], str]] = {
    "no names": ({"request": pem()}, "it asks for something other than names and addresses, or for none"),
    "an e-mail address beside": (
        {"request": pem(sans=[*names_of("worker-1"), x509.RFC822Name("a@example.org")])}, _NEITHER,
    ),
    "a URI beside": (
        {"request": pem(sans=[*names_of("worker-1"), x509.UniformResourceIdentifier("https://x")])}, _NEITHER,
    ),
    "a wildcard": ({"request": pem(sans=names_of("*.example.org"))}, _NEITHER),
    "a name twice": ({"request": pem(sans=names_of("worker-1", "WORKER-1"))}, "it names something twice"),
    "an IPv4 address as an IPv6 one": (
        {"request": pem(sans=names_of("::ffff:10.0.0.2"))}, "it writes an IPv4 address as an IPv6 one",
    ),
    "a letter that only looks like one": ({"request": pem(extensions=[_written("wor\u212aer-1")])}, _NEITHER),
    "an address as a DNS name": (
        {"request": pem(sans=[x509.DNSName("127.0.0.1")])}, "it writes an address as a DNS name",
    ),
    "an extension beside": (
        {"request": pem(
            sans=names_of("worker-1"), extensions=[x509.ExtendedKeyUsage([x509.ObjectIdentifier("1.3.6.1.5.5.7.3.2")])]
        )},
        "it asks for something other than names and addresses",
    ),
    "client auth": ({"usages": ("digital signature", "client auth")}, _USAGES),
    "both": ({"usages": ("digital signature", "server auth", "client auth")}, _USAGES),
    "another node": ({"username": "system:node:worker-2"}, f"system:node:worker-2 {_ONLY_ITSELF}"),
    "a person": ({"username": "alice", "groups": ("system:authenticated",)}, f"alice {_ONLY_ITSELF}"),
    "a person in the group": ({"username": "alice", "groups": NODE_GROUPS}, f"alice {_ONLY_ITSELF}"),
    "a node outside the group": ({"groups": ("system:authenticated",)}, f"system:node:worker-1 {_ONLY_ITSELF}"),
    "a node with more groups": ({"groups": (*NODE_GROUPS, "system:masters")}, f"system:node:worker-1 {_ONLY_ITSELF}"),
    "a bootstrapper": ({"username": ACCOUNT, "groups": ACCOUNT_GROUPS}, f"{ACCOUNT} {_ONLY_ITSELF}"),
    "another common name": (
        {"request": pem("worker-2", sans=names_of("worker-1"))}, f"system:node:worker-1 {_ONLY_ITSELF}",
    ),
}  # fmt: skip

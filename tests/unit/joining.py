"""Real certificate requests with real keys, as kubelets make them and as they do not; facts around them."""

from __future__ import annotations

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
from hostler.join.model import (
    CLIENT,
    SERVING,
    Crowd,
    Facts,
    Invitation,
    Policy,
    RequestSpec,
    SigningRequest,
)
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
    owners: dict[str, frozenset[str]] = {}
    for one_node in nodes:
        for at in one_node.status.addresses:
            owners[at.address] = owners.get(at.address, frozenset()) | {one_node.metadata.name}
    known: Mapping[str, Any] = {
        "nodes": Known({one.metadata.name: one for one in nodes}, NOW),
        "owners": owners,
        "invited": Known(by_name, NOW),
        "used": Known({}, NOW),
        "crowd": Known(Crowd(1, 100), NOW),
    }
    return Facts(**{**known, **more})

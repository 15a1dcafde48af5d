"""The certificates of one sandbox: a CA of its own, valid for a year, all files 0600."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=365)
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

# name -> (common name, organizations); every one may serve on loopback and be a client
PEOPLE = {
    "apiserver": ("kube-apiserver", ()),
    "etcd": ("etcd", ()),
    "admin": ("sandbox-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "kwok": ("sandbox-kwok", ("system:masters",)),
    "keeper": ("sandbox-keeper", ("system:masters",)),
    "vcenter": ("vcenter", ()),
    "kubelet-client": ("kube-apiserver-kubelet-client", ("system:masters",)),
}
SERVES = {"apiserver", "etcd", "controller-manager", "scheduler", "vcenter"}


def write_secret(path: Path, data: bytes) -> None:
    """Write a file nobody else may read, at no moment."""
    partial = path.with_name(path.name + ".partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    partial.replace(path)


def make_certificates(folder: Path, servers: Collection[str] = ()) -> None:
    """Everything the control plane and further `servers` need; called once per sandbox, before anything starts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, ca = _authority(folder, "ca", "hostler-sandbox")
    for name, (common_name, organizations) in PEOPLE.items():
        _leaf(folder, name, common_name, organizations, ca_key, ca, serves=name in SERVES)
    for name in servers:
        _leaf(folder, name, name, (), ca_key, ca, serves=True)
    # The simulator takes the last certificate of its chain for the bundle that clients are told to trust.
    chain = (folder / "vcenter.crt").read_bytes() + (folder / "ca.crt").read_bytes()
    write_secret(folder / "vcenter-chain.crt", chain)
    # The aggregation layer has a CA of its own: whoever holds a certificate of it may claim to be anybody.
    front_key, front = _authority(folder, "front-proxy-ca", "hostler-sandbox-front-proxy")
    _leaf(folder, "front-proxy", "front-proxy-client", (), front_key, front, serves=False)
    tokens = rsa.generate_private_key(65537, 2048)
    write_secret(folder / "tokens.key", _pem(tokens))
    write_secret(
        folder / "tokens.pub",
        tokens.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


def _authority(folder: Path, name: str, common_name: str) -> tuple[_Key, x509.Certificate]:
    # RSA for the CA: the cluster signer signs kubelets' certificates with it, and old clients know RSA best.
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_secret(folder / f"{name}.key", _pem(key))
    write_secret(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    return key, certificate


def _leaf(
    folder: Path,
    name: str,
    common_name: str,
    organizations: tuple[str, ...],
    ca_key: _Key,
    ca: x509.Certificate,
    *,
    serves: bool,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    # Servers are clients too: etcd's JSON gateway calls etcd itself with the server's certificate.
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if serves else [])]
    builder = (
        _builder(subject, ca.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    if serves:
        hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        builder = builder.add_extension(
            x509.SubjectAlternativeName(
                [
                    *(x509.DNSName(host) for host in hosts),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    x509.IPAddress(ipaddress.ip_address("10.96.0.1")),  # the Service `kubernetes`
                ]
            ),
            critical=False,
        )
    certificate = builder.sign(ca_key, hashes.SHA256())
    write_secret(folder / f"{name}.key", _pem(key))
    write_secret(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # An hour back, for a machine whose clock is put right while the sandbox runs.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

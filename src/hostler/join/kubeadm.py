"""How a machine joins a plain Kubernetes cluster: an expiring bootstrap token and the cloud-init that uses it. Pure.

The token is the secret: whoever has it may ask to become a node, so it lives hours and is for one host. The CA's hash
pins the cluster, so nobody in between can hand out another.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hostler.install.admission import is_ours
from hostler.instant import Instant, iso

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
GROUP = "system:bootstrappers:kubeadm:default-node-token"
NAMESPACE = "kube-system"
# Labels of Kubernetes that a kubelet may give itself beside those below kubelet. and node.kubernetes.io.
_ITS_OWN = frozenset(
    (
        "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    )
)  # fmt: skip
JOIN_FILE = "/etc/kubernetes/kubeadm-join.yaml"


@dataclass(frozen=True, slots=True)
class Token:
    """A bootstrap token: `id.secret`."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.id}.***)"


def new_token() -> Token:
    def drawn(length: int) -> str:
        return "".join(secrets.choice(_ALPHABET) for _ in range(length))

    return Token(drawn(6), drawn(16))


def token_secret(token: Token, until: Instant, host: str) -> dict[str, Any]:
    """The Secret the API server and the token cleaner know it by."""
    return {
        "metadata": {"name": f"bootstrap-token-{token.id}", "namespace": NAMESPACE},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret,
            "expiration": iso(until),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": GROUP,
            "description": f"hostler join cloud-init {host}",
        },
    }


def ca_pin(pem: bytes) -> str:
    """`sha256:...` over the CA's public key, as kubeadm checks it. Raises ValueError where there is not one CA."""
    found = x509.load_pem_x509_certificates(pem)
    if len(found) != 1:
        raise ValueError(f"{len(found)} certificates were given, and the CA is one")
    key = found[0].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


def join_configuration(
    host: str, server: str, token: Token, pins: tuple[str, ...], labels: Mapping[str, str]
) -> dict[str, Any]:
    """kubeadm's JoinConfiguration. `server` is HOST:PORT."""
    registration: dict[str, Any] = {"name": host}
    if labels:
        said = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        registration["kubeletExtraArgs"] = [{"name": "node-labels", "value": said}]
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {"apiServerEndpoint": server, "token": str(token), "caCertHashes": list(pins)}},
        "nodeRegistration": registration,
    }


def reserved(label: str) -> bool:
    """Whether a kubelet may not give itself this label: one of Kubernetes, or of Hostler (an admission policy)."""
    if is_ours(label):
        return True
    space = f".{label.rpartition('/')[0]}"
    theirs = space.endswith((".kubernetes.io", ".k8s.io"))
    return theirs and not space.endswith((".kubelet.kubernetes.io", ".node.kubernetes.io")) and label not in _ITS_OWN


def cloud_init(host: str, configuration: Mapping[str, Any]) -> str:
    """User data: the hostname, the configuration as a file only root can read, and the one command."""
    content = base64.b64encode(yaml.safe_dump(dict(configuration), sort_keys=False).encode()).decode()
    made = {
        "hostname": host,
        "preserve_hostname": False,
        "write_files": [{"path": JOIN_FILE, "permissions": "0600", "encoding": "b64", "content": content}],
        "runcmd": [["kubeadm", "join", "--config", JOIN_FILE]],
    }
    return "#cloud-config\n" + yaml.safe_dump(made, sort_keys=False)

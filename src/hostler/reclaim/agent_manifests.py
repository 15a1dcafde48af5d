"""What a reclaim puts into the old cluster for one host, as data. Pure.

Everything of one host has its label, so that all of it can be found and removed; what hosts share goes with the last.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from hostler.apis.assisted import Proxy
from hostler.host.facts import Fact, Known
from hostler.kube.kinds import CONFIG_MAP, DAEMON_SET, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.facts import OURS
from hostler.reclaim.model import SpokeNode, SpokeObject

NAMESPACE_NAME = "assisted-installer"
SHARED_NAME = "node-reclaim"
HOST_LABEL = f"{OURS}/host"
MANAGED = {"app.kubernetes.io/managed-by": "hostler", "app.kubernetes.io/component": "reclaim"}
ROLE = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
# In the order they are made; removed the other way round.
SHARED = ((SERVICE_ACCOUNT, SHARED_NAME), (ROLE, SHARED_NAME), (ROLE_BINDING, SHARED_NAME))
PER_HOST = (SECRET, CONFIG_MAP, DAEMON_SET)
LONGEST_NAME = 52  # pods of a DaemonSet add a suffix and carry the name in labels of 63 characters
_FILES = "/run/reclaim"


@dataclass(frozen=True, slots=True)
class Order:
    """Everything the agent's pod needs to know."""

    host: str  # the Agent's name
    host_uid: str
    node: SpokeNode
    infra_env: str  # its uid, as in the paths of the hub's API
    artifacts: Artifacts
    hub_url: str
    image: str
    token: str
    patience: float = 2700.0  # seconds in which the agent tries to fetch what may yet come
    rebooting: float = 1800.0  # seconds in which the host is to be in discovery once it was told to restart
    require_one_shot: bool = False
    clean_boot: bool = False
    key: str = ""  # names the key the token is signed with
    ca: str = ""
    pull_secret: bytes = b""
    proxy: Proxy | None = None
    security_context_constraints: bool = False  # the cluster is OpenShift


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object to be there."""

    kind: Kind
    name: str
    body: dict[str, Any]

    @property
    def namespace(self) -> str | None:
        return NAMESPACE_NAME if self.kind.namespaced else None


def name_for(node: str) -> str:
    """`<node, dots as dashes>-reclaim`, shortened with a hash where that is too long for a DaemonSet."""
    name = f"{node.replace('.', '-')}-reclaim"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{node.replace('.', '-')[: LONGEST_NAME - 17].rstrip('-')}-{_digest(node)}-reclaim"


def agent_of(node: str) -> SpokeObject:
    """The DaemonSet of the agent for this node."""
    return SpokeObject(DAEMON_SET.plural, name_for(node))


def is_deployed(remains: Fact[frozenset[SpokeObject]], node: str) -> bool:
    """Whether the agent of this node is known to be there: its own DaemonSet, whatever else is left."""
    return isinstance(remains, Known) and agent_of(node) in remains.value


def has_own_objects(remains: Fact[frozenset[SpokeObject]]) -> bool:
    """Whether something is there for this very Agent, and not only what hosts share."""
    shared = {kind.plural for kind in (NAMESPACE, *(kind for kind, _ in SHARED))}
    return isinstance(remains, Known) and any(left.kind not in shared for left in remains.value)


def pull_name_for(node: str) -> str:
    return f"{name_for(node)}-pull"


def list_manifests(order: Order) -> list[Manifest]:
    """Every object, in the order they must be made."""
    return [*_shared_manifests(order), *_host_manifests(order)]


def _shared_manifests(order: Order) -> list[Manifest]:
    enforce = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
    rules = []
    if order.security_context_constraints:
        rules.append(
            {
                "apiGroups": ["security.openshift.io"],
                "resources": ["securitycontextconstraints"],
                "resourceNames": ["privileged"],
                "verbs": ["use"],
            }
        )
    return [
        Manifest(NAMESPACE, NAMESPACE_NAME, {"metadata": {"name": NAMESPACE_NAME, "labels": {**MANAGED, **enforce}}}),
        _manifest(SERVICE_ACCOUNT, SHARED_NAME, {"automountServiceAccountToken": False}),
        _manifest(ROLE, SHARED_NAME, {"rules": rules}),
        _manifest(
            ROLE_BINDING,
            SHARED_NAME,
            {
                "roleRef": {"apiGroup": ROLE.group, "kind": "Role", "name": SHARED_NAME},
                "subjects": [{"kind": "ServiceAccount", "name": SHARED_NAME, "namespace": NAMESPACE_NAME}],
            },
        ),
    ]


def _host_manifests(order: Order) -> list[Manifest]:
    name = name_for(order.node.name)
    found = [_manifest(SECRET, name, {"type": "Opaque", "data": {"token": _base64(order.token.encode())}}, order)]
    if order.pull_secret:
        body = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": _base64(order.pull_secret)}}
        found.append(_manifest(SECRET, pull_name_for(order.node.name), body, order))
    found.append(_manifest(CONFIG_MAP, name, {"data": {"ca.pem": order.ca}}, order))
    found.append(_manifest(DAEMON_SET, name, {"spec": _daemon_set(order, name)}, order))
    return found


def _manifest(kind: Kind, name: str, body: dict[str, Any], order: Order | None = None) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE_NAME, "labels": dict(MANAGED)}
    if order is not None:
        metadata["labels"][HOST_LABEL] = order.host_uid
        # Whoever removes the node removes this too.
        node = {"apiVersion": "v1", "kind": "Node", "name": order.node.name, "uid": order.node.uid}
        metadata["ownerReferences"] = [node]
    return Manifest(kind, name, {"metadata": metadata, **body})


def _daemon_set(order: Order, name: str) -> dict[str, Any]:
    labels = {**MANAGED, HOST_LABEL: order.host_uid}
    spec: dict[str, Any] = {
        "serviceAccountName": SHARED_NAME,
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": order.node.hostname_label or order.node.name},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "hostPID": True,
        "terminationGracePeriodSeconds": 60,  # an ended agent takes its boot entry back
        "containers": [_container(order)],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "token", "secret": {"secretName": name, "defaultMode": 0o400}},
            {"name": "ca", "configMap": {"name": name}},
        ],
    }
    if order.pull_secret:
        spec["imagePullSecrets"] = [{"name": pull_name_for(order.node.name)}]
    return {
        "selector": {"matchLabels": {HOST_LABEL: order.host_uid}},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def _container(order: Order) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": order.image,
        "command": ["python3", "-m", "hostler.agent"],
        "env": [{"name": key, "value": value} for key, value in agent_environment(order).items()],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [
            # Mounts made below / on the host later, such as an automounted /boot, must be seen here too.
            {"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"},
            {"name": "token", "mountPath": f"{_FILES}/token", "readOnly": True},
            {"name": "ca", "mountPath": f"{_FILES}/ca", "readOnly": True},
        ],
    }


def agent_environment(order: Order) -> dict[str, str]:
    """The agent's settings; the boot artifacts and the boot this began in are among them."""
    found = {
        "HUB_URL": order.hub_url,
        "INFRA_ENV_ID": order.infra_env,
        "HOST_ID": order.host,
        "TOKEN_FILE": f"{_FILES}/token/token",
        "HOST_MOUNT": "/host",
        "EXPECTED_BOOT_ID": order.node.boot_id,
        "KERNEL_URL": order.artifacts.kernel,
        "INITRD_URL": order.artifacts.initrd,
        "ROOTFS_URL": order.artifacts.rootfs,
        "PATIENCE_SECONDS": f"{order.patience:.0f}",
        "SILENCE_SECONDS": f"{order.rebooting:.0f}",
        # Said before the stage's own time is over: that the host never went down is more than that it never came.
        "RESTART_SECONDS": f"{order.rebooting / 2:.0f}",
        "STAY": "true",
    }
    plain = order.hub_url.lower().startswith("http://")  # the operator's settings accept that, or it would not run
    wishes = (
        ("REQUIRE_ONE_SHOT", order.require_one_shot), ("CLEAN_BOOT", order.clean_boot), ("HUB_PLAIN_HTTP", plain),
    )  # fmt: skip
    found |= {name: "true" for name, wished in wishes if wished}
    if order.ca:
        found["CA_FILE"] = f"{_FILES}/ca/ca.pem"
    if order.proxy is not None:
        pairs = (
            ("HTTP_PROXY", order.proxy.http_proxy),
            ("HTTPS_PROXY", order.proxy.https_proxy),
            ("NO_PROXY", order.proxy.no_proxy),
        )
        found |= {key: value for key, value in pairs if value}
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

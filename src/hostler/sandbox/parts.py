"""The parts of a sandbox and their command lines. One function per part; nothing here starts anything."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path

import msgspec
import yaml

from hostler.sandbox.certs import write_secret
from hostler.sandbox.model import PROVIDERS, Layout, Provider, State

# The label that takes a node away from kwok. Node labels are selected by the API server, so kwok sees such a node
# as deleted: it stops its heartbeat, lets its lease lapse and leaves its pods alone until the label goes.
OFF_LABEL = "sandbox.hostler.dev/kubelet"
NODES_OF_KWOK = f"{OFF_LABEL}!=off"
HOST = "127.0.0.1"
WEBHOOKS = "capi-webhooks"  # the certificate that Cluster API's managers serve with
MANAGERS = tuple(one.part for one in PROVIDERS)


class Part(msgspec.Struct, frozen=True):
    """One process of the sandbox."""

    name: str
    argv: list[str]
    env: dict[str, str]
    port: str | None = None  # its name among the sandbox's ports


def etcd(layout: Layout, state: State) -> Part:
    client = f"https://{HOST}:{state.ports['etcd']}"
    peer = f"https://{HOST}:{state.ports['etcd-peer']}"
    pki = layout.pki
    flags = {
        "name": "sandbox",
        "data-dir": layout.root / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"sandbox={peer}",
        # Nobody's data: a machine that loses power loses its sandbox, and starts are seconds faster.
        "unsafe-no-fsync": "true",
        "quota-backend-bytes": 8 * 1024**3,
        "log-level": "warn",
        # Client certificates, because other users of this machine reach loopback too.
        "client-cert-auth": "true",
        "trusted-ca-file": pki / "ca.crt",
        "cert-file": pki / "etcd.crt",
        "key-file": pki / "etcd.key",
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": pki / "ca.crt",
        "peer-cert-file": pki / "etcd.crt",
        "peer-key-file": pki / "etcd.key",
    }
    return _control_plane("etcd", state, flags)


def apiserver(layout: Layout, state: State) -> Part:
    pki = layout.pki
    flags: dict[str, object] = {
        "etcd-servers": f"https://{HOST}:{state.ports['etcd']}",
        "etcd-cafile": pki / "ca.crt",
        "etcd-certfile": pki / "etcd.crt",
        "etcd-keyfile": pki / "etcd.key",
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": state.ports["kube-apiserver"],
        # Loopback is no valid endpoint for the Service `kubernetes`, and nothing in the sandbox uses it.
        "endpoint-reconciler-type": "none",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "kubelet-client-certificate": pki / "kubelet-client.crt",
        "kubelet-client-key": pki / "kubelet-client.key",
        "requestheader-client-ca-file": pki / "front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": pki / "front-proxy.crt",
        "proxy-client-key-file": pki / "front-proxy.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki / "tokens.pub",
        "service-account-signing-key-file": pki / "tokens.key",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "allow-privileged": "true",
        "max-requests-inflight": 3000,
        "max-mutating-requests-inflight": 1500,
        # Killed and restarted by tests: a graceful end that waits for every watcher only costs them time.
        "shutdown-delay-duration": "0s",
    }
    if state.options.audit:
        flags |= {
            "audit-policy-file": layout.conf / "audit-policy.yaml",
            "audit-log-path": layout.audit_log,
            "audit-log-mode": "blocking",
            "audit-log-maxsize": 1_000_000,  # MB: never rotated, so that a reader finds it all in one file
            "audit-log-format": "json",
        }
    return _control_plane("kube-apiserver", state, flags)


def controller_manager(layout: Layout, state: State) -> Part:
    pki, options = layout.pki, state.options
    flags = {
        **_component(layout, state, "kube-controller-manager", "controller-manager"),
        # ttl-controller annotates every node anew whenever the cluster passes a size, for caches of real kubelets.
        "controllers": "*,bootstrap-signer-controller,token-cleaner-controller,-ttl-controller",
        "root-ca-file": pki / "ca.crt",
        "service-account-private-key-file": pki / "tokens.key",
        "use-service-account-credentials": "true",
        "cluster-signing-cert-file": pki / "ca.crt",
        "cluster-signing-key-file": pki / "ca.key",
        "allocate-node-cidrs": "false",
        "node-monitor-period": f"{options.node_monitor_period_seconds}s",
        "node-monitor-grace-period": f"{options.node_monitor_grace_seconds}s",
    }
    return _control_plane("kube-controller-manager", state, flags)


def scheduler(layout: Layout, state: State) -> Part:
    return _control_plane("kube-scheduler", state, _component(layout, state, "kube-scheduler", "scheduler"))


def kwok(layout: Layout, state: State) -> Part:
    flags = {
        "kubeconfig": layout.conf / "kwok.kubeconfig",
        "config": layout.conf / "kwok.yaml",
        "manage-nodes-with-label-selector": NODES_OF_KWOK,
        "cidr": "10.244.0.1/16",
        "server-address": f"{HOST}:{state.ports['kwok']}",
        "node-lease-duration-seconds": state.options.node_lease_duration_seconds,
        "v": "WARN",  # a line per lease renewal otherwise
    }
    return _control_plane("kwok", state, flags)


def vcenter(layout: Layout, state: State) -> Part:
    pki = layout.pki
    argv = [
        state.programs["vcenter"],
        f"--inventory={layout.conf / 'inventory.json'}",
        f"--listen={HOST}:{state.ports['vcenter']}",
        f"--control={HOST}:{state.ports['vcenter-control']}",
        f"--state={layout.vcenter}",
        f"--cert={pki / 'vcenter-chain.crt'}",
        f"--key={pki / 'vcenter.key'}",
    ]
    # The same login after a restart: whoever is connected shall only have to reconnect.
    login = {
        "HOSTLER_SANDBOX_VCENTER_USER": state.vcenter_user,
        "HOSTLER_SANDBOX_VCENTER_PASSWORD": state.vcenter_password,
    }
    return Part(name="vcenter", argv=argv, env={**os.environ, **login}, port="vcenter")


def keeper(layout: Layout, state: State) -> Part:
    argv = [sys.executable, "-m", "hostler.sandbox.keeper", "--dir", str(layout.root)]
    return Part(name="keeper", argv=argv, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def hosts(layout: Layout, state: State) -> Part:
    argv = [sys.executable, "-m", "hostler.sandbox.hosts.driver", "--dir", str(layout.root)]
    return Part(name="hosts", argv=argv, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def manager(provider: Provider, layout: Layout, state: State) -> Part:
    """One of Cluster API's managers, with the rights of its service account."""
    webhooks, health, diagnostics = (state.ports[name] for name in provider.ports)
    flags = {
        "kubeconfig": layout.conf / f"{provider.part}.kubeconfig",
        "leader-elect": "false",
        "webhook-port": webhooks,
        "webhook-cert-dir": layout.pki,
        "webhook-cert-name": f"{WEBHOOKS}.crt",
        "webhook-key-name": f"{WEBHOOKS}.key",
        "health-addr": f"{HOST}:{health}",
        "diagnostics-address": f"{HOST}:{diagnostics}",
        "feature-gates": "ClusterTopology=true",
    }
    program = Path(state.programs["capi"]) / provider.program
    argv = [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]
    return Part(
        name=provider.part, argv=argv, env={**os.environ, "NO_PROXY": HOST, "no_proxy": HOST}, port=provider.part
    )


# In the order of starting; the other way round for ending.
PARTS: dict[str, Callable[[Layout, State], Part]] = {
    "etcd": etcd,
    "kube-apiserver": apiserver,
    "vcenter": vcenter,
    "kube-controller-manager": controller_manager,
    "kube-scheduler": scheduler,
    "kwok": kwok,
    "keeper": keeper,
    "hosts": hosts,
    **{one.part: partial(manager, one) for one in PROVIDERS},
}


def parts_of(state: State) -> list[str]:
    """The names of the parts this sandbox has."""
    absent = set()
    if not state.has_vcenter:
        absent.add("vcenter")
    if not state.options.kwok:
        absent |= {"kwok", "keeper"}
    if not {"metal3", "bmo"} & {*state.options.crds}:
        absent.add("hosts")  # there is nothing for it to drive
    if "capi" not in state.options.extras:
        absent |= {*MANAGERS}
    return [name for name in PARTS if name not in absent]


def write_configuration(layout: Layout, state: State) -> None:
    """Kubeconfigs, kwok's stages and the audit policy."""
    layout.conf.mkdir(mode=0o700, exist_ok=True)
    write_secret(layout.kubeconfig, _kubeconfig(layout, state, "admin"))
    for person in ("controller-manager", "scheduler", "kwok", "keeper"):
        write_secret(layout.conf / f"{person}.kubeconfig", _kubeconfig(layout, state, person))
    for one in PROVIDERS if "capi" in state.options.extras else ():
        # Not a certificate of its own: the names of these service accounts are too long for one.
        acting = _kubeconfig(layout, state, "admin", {"as": one.user})
        write_secret(layout.conf / f"{one.part}.kubeconfig", acting)
    stages = resources.files("hostler.sandbox") / "stages.yaml"
    write_secret(layout.conf / "kwok.yaml", stages.read_bytes())
    write_secret(layout.conf / "audit-policy.yaml", yaml.safe_dump(AUDIT_POLICY).encode())


AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Who held which lease when, in full: that is what leader election is judged by.
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {"level": "None", "resources": [{"group": "", "resources": ["events"]}]},
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["secrets", "serviceaccounts/token"]}],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        # What programs with rights of their own read: whether they are refused, and which rights they have a use for.
        {"level": "None", "nonResourceURLs": ["*"]},
        {"level": "Metadata", "verbs": ["get", "list", "watch"], "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


def _component(layout: Layout, state: State, name: str, person: str) -> dict[str, object]:
    """What the controller-manager and the scheduler have in common."""
    return {
        "kubeconfig": layout.conf / f"{person}.kubeconfig",
        "authentication-kubeconfig": layout.conf / f"{person}.kubeconfig",
        "authorization-kubeconfig": layout.conf / f"{person}.kubeconfig",
        "bind-address": HOST,
        "secure-port": state.ports[name],
        "tls-cert-file": layout.pki / f"{person}.crt",
        "tls-private-key-file": layout.pki / f"{person}.key",
        "leader-elect": "false",
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
    }


def _control_plane(name: str, state: State, flags: dict[str, object]) -> Part:
    argv = [state.programs["controlplane"], name, *(f"--{flag}={value}" for flag, value in flags.items())]
    # A proxy of the user's must not get between the parts.
    return Part(name=name, argv=argv, env={**os.environ, "NO_PROXY": HOST, "no_proxy": HOST}, port=name)


def _kubeconfig(layout: Layout, state: State, person: str, acting: Mapping[str, str] | None = None) -> bytes:
    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    name = "hostler-sandbox"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": state.server,
                    "certificate-authority-data": embedded(layout.pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": person,
                "user": {
                    "client-certificate-data": embedded(layout.pki / f"{person}.crt"),
                    "client-key-data": embedded(layout.pki / f"{person}.key"),
                    **(acting or {}),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": person}}],
        "current-context": name,
    }
    return yaml.safe_dump(content, sort_keys=False, width=10_000).encode()

"""How to reach an API server and be let in: by kubeconfig, from inside a pod, or from a kubeconfig in a Secret.

Whatever is wrong is found here, before the first request, and named with file, context, field and what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from hostler.kube.authentication import LoginSource, TokenFileLogin, certificate_of, impersonation, login_of
from hostler.kube.connection import Credentials
from hostler.kube.connection_check import check as check
from hostler.kube.kubeconfig import Chosen, Material, Merged, Origin, files_of, parse, read, wrong
from hostler.kube.proxy import check_proxy, proxy_from_environment
from hostler.kube.tls import Tls

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ApiConnection:
    """One API server and our way in. Implements `client.Connection`."""

    def __init__(
        self,
        *,
        server: str,
        source: str,
        context: str,
        user: str,
        namespace: str,
        tls: Tls | None,
        login: LoginSource,
        headers: Mapping[str, str] | None = None,
        server_hostname: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self.server, self.namespace = server, namespace
        self.server_hostname, self.proxy = server_hostname, proxy
        self.source = source  # for messages: which file, flag or variable this came from
        self.context, self.user = context, user
        self.rejections = 0
        self._tls, self._login, self._headers = tls, login, dict(headers or {})
        if tls is not None:
            tls.context()  # so that a missing or wrong file is reported now

    async def credentials(self) -> Credentials:
        """Afresh for every request; cheap unless something changed."""
        login = await self._login.current()
        context = self._tls.context(login.pair) if self._tls is not None else None
        return Credentials({**login.headers, **self._headers}, context)

    def rejected(self) -> None:
        self.rejections += 1
        self._login.rejected()


def load(path: str | None = None, context: str | None = None) -> ApiConnection:
    """The first there is: the file given, KUBECONFIG, the pod's own account, ~/.kube/config."""
    if path:
        return _from_files([Path(path)], context, "--kubeconfig")
    if variable := os.environ.get("KUBECONFIG"):
        files = files_of(variable)
        if not files:
            raise wrong(f"KUBECONFIG is {variable!r}, but there is no such file", "Mend it, or unset it.")
        return _from_files(files, context, "KUBECONFIG")
    if not context and "KUBERNETES_SERVICE_HOST" in os.environ and (MOUNT / "token").exists():
        return in_cluster()
    default = Path.home() / ".kube" / "config"
    if not default.exists():
        raise wrong(
            f"no cluster to talk to: no --kubeconfig, no KUBECONFIG, not in a pod, and no {default}",
            "Give --kubeconfig, or start a cluster on this machine with `hostler sandbox up`.",
        )
    return _from_files([default], context, "the default file")


def _from_files(files: list[Path], context: str | None, why: str) -> ApiConnection:
    found = [(Origin(f"the kubeconfig {file}", file.absolute().parent), read(file)) for file in files]
    chosen = Merged(found).choose(context)
    listed = os.pathsep.join(str(file) for file in files)
    return connect(chosen, source=f"{listed} ({why}), context {chosen.context!r}")


def from_bytes(data: bytes, label: str = "the kubeconfig Secret", context: str | None = None) -> ApiConnection:
    """A kubeconfig that another party wrote, for example in a Secret: it may name no files and no commands of ours."""
    origin = Origin(label)
    chosen = Merged([(origin, parse(data, label, trusted=False))]).choose(context)
    return connect(chosen, source=f"{label}, context {chosen.context!r}")


def connect(chosen: Chosen, *, source: str) -> ApiConnection:
    """The connection of one context, with everything about it checked that can be without the network."""
    server, cluster = server_of(chosen), chosen.cluster
    secure = server.startswith("https://")
    proxy = (
        check_proxy(cluster.proxy_url, chosen.about("cluster.proxy-url"))
        if cluster.proxy_url
        else proxy_from_environment(server)
    )
    return ApiConnection(
        server=server,
        source=source,
        context=chosen.context,
        user=chosen.user_name,
        namespace=chosen.namespace,
        tls=tls_of(chosen) if secure else None,
        login=login_of(chosen),
        headers=impersonation(chosen),
        server_hostname=cluster.tls_server_name or None if secure else None,
        proxy=proxy,
    )


def server_of(chosen: Chosen) -> str:
    server = chosen.cluster.server.strip().rstrip("/")
    about = chosen.about("cluster.server")
    if not server:
        raise wrong(f"{about} is empty", "It should look like https://api.example.com:6443.")
    if "://" not in server:
        server = f"http://{server}"  # as kubectl reads it
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise wrong(
            f"{about}: {server!r} is not a server's address", "It should look like https://api.example.com:6443."
        )
    return server


def tls_of(chosen: Chosen) -> Tls:
    cluster = chosen.cluster
    authority = chosen.material(
        "cluster.certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority
    )
    if cluster.insecure_skip_tls_verify and authority is not None:
        raise wrong(
            f"{chosen.about('cluster.insecure-skip-tls-verify')} is true although there is a certificate authority",
            "Remove insecure-skip-tls-verify.",
        )
    return Tls(authority=authority, pair=certificate_of(chosen), verify=not cluster.insecure_skip_tls_verify)


def in_cluster(mount: Path = MOUNT, environment: Mapping[str, str] | None = None) -> ApiConnection:
    """From inside a pod: the service account's token (re-read as the kubelet renews it), CA and namespace."""
    env = os.environ if environment is None else environment
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "") or "443"
    if not host:
        raise wrong("not in a pod: KUBERNETES_SERVICE_HOST is not set", "Give --kubeconfig or set KUBECONFIG.")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    label = "the service account's mount"
    try:
        namespace = (mount / "namespace").read_text().strip()
    except OSError:
        namespace = ""  # a mount without it is legal
    return ApiConnection(
        server=server,
        source=f"in-cluster ({mount})",
        context="in-cluster",
        user="the pod's service account",
        namespace=namespace or "default",
        tls=Tls(authority=Material(f"{label}, ca.crt", file=mount / "ca.crt"), pair=None, verify=True),
        login=TokenFileLogin(Material(f"{label}, token", file=mount / "token")),
        proxy=proxy_from_environment(server, env),
    )

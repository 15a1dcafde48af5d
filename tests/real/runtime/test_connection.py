"""Ways into the real API server: certificate, token, token file, exec plugin, and a pod's own account."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.kube.client import Client
from hostler.kube.config import ApiConnection, check, in_cluster, load
from hostler.kube.connection_check import ServerVersion
from hostler.kube.errors import Unauthorized
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Object
from hostler.sandbox import Sandbox


def meet(connection: ApiConnection) -> ServerVersion:
    async def go() -> ServerVersion:
        async with Client(connection) as client:
            return await check(client)

    return asyncio.run(go())


def with_user(sandbox: Sandbox, folder: Path, user: dict[str, Any]) -> str:
    """The sandbox's kubeconfig with another user in it."""
    content = yaml.safe_load(sandbox.layout.kubeconfig.read_text())
    content["users"] = [{"name": entry["name"], "user": user} for entry in content["users"]]
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def token(sandbox: Sandbox, namespace: str) -> str:
    """Of a service account that may do nothing in particular."""
    sandbox.kubectl("-n", namespace, "create", "serviceaccount", "visitor")
    return sandbox.kubectl("-n", namespace, "create", "token", "visitor").strip()


def test_the_sandboxs_own_kubeconfig(sandbox: Sandbox) -> None:
    found = meet(load(str(sandbox.layout.kubeconfig), None))
    assert found.git.startswith("v1.")
    assert found.user


def test_a_token_of_a_service_account(sandbox: Sandbox, namespace: str, tmp_path: Path, token: str) -> None:
    found = meet(load(with_user(sandbox, tmp_path, {"token": token}), None))
    assert found.user == f"system:serviceaccount:{namespace}:visitor"


def test_an_exec_plugin_that_hands_out_a_real_token(
    sandbox: Sandbox, namespace: str, tmp_path: Path, token: str
) -> None:
    credential = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": token}}
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(credential)!r})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": credential["apiVersion"], "command": "./plugin", "interactiveMode": "Never"}}
    found = meet(load(with_user(sandbox, tmp_path, user), None))
    assert found.user == f"system:serviceaccount:{namespace}:visitor"


def test_from_inside_a_pod_and_the_token_is_renewed_under_us(
    sandbox: Sandbox, namespace: str, tmp_path: Path, token: str
) -> None:
    """As the kubelet does it: files in a mount, replaced when the token is renewed."""
    mount = tmp_path / "serviceaccount"
    mount.mkdir()
    (mount / "ca.crt").write_bytes((sandbox.layout.pki / "ca.crt").read_bytes())
    (mount / "namespace").write_text(namespace)
    (mount / "token").write_text("a-token-from-long-ago")
    host, port = sandbox.state.server.removeprefix("https://").split(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    connection = in_cluster(mount, environment)
    assert connection.namespace == namespace

    async def go() -> str:
        async with Client(connection) as client:
            with pytest.raises(Unauthorized):
                await client.get(CONFIG_MAP, "x", namespace, type=Object)
            assert connection.rejections == 1
            (mount / "token").write_text(token)
            return (await check(client)).user

    assert asyncio.run(go()) == f"system:serviceaccount:{namespace}:visitor"

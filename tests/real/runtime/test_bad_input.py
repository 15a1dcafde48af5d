"""What people give us that is wrong, against the real API server: each is one clear sentence, and nothing starts."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hostler.errors import Complaint, Exit
from hostler.kube.client import Client
from hostler.kube.config import check, load
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.sandbox import Sandbox
from tests.unit.kube_pki import Authority


async def admit_all(_: web.Request) -> None:
    """Who may ask is not the story here."""


def complaint(path: str, context: str | None = None) -> Complaint:
    """What a start with this kubeconfig ends with."""

    async def go() -> None:
        async with Client(load(path, context), timeout=60) as client:
            await check(client)

    with pytest.raises(Complaint) as caught:
        asyncio.run(go())
    return caught.value


def edited(sandbox: Sandbox, folder: Path, *, cluster: dict[str, Any] | None = None, user: Any = None) -> str:
    content = yaml.safe_load(sandbox.layout.kubeconfig.read_text())
    for entry in content["clusters"]:
        entry["cluster"].update(cluster or {})
    for entry in content["users"]:
        entry["user"] = user if user is not None else entry["user"]
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def expired(sandbox: Sandbox, token: str) -> str:
    """The same token as if it had been issued two hours ago, signed by the cluster's own key."""
    head, claims, _ = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=="))
    content.update(exp=int(time.time()) - 3600, iat=int(time.time()) - 7200, nbf=int(time.time()) - 7200)
    signed = f"{head}.{_b64(json.dumps(content).encode())}"
    return f"{signed}.{_b64(_sign(sandbox.layout.pki / 'tokens.key', signed.encode()))}"


def _sign(key: Path, data: bytes) -> bytes:
    private = load_pem_private_key(key.read_bytes(), None)
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(data, padding.PKCS1v15(), hashes.SHA256())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    r, s = utils.decode_dss_signature(private.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_kubeconfig_that_may_not_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(sandbox.layout.kubeconfig.read_bytes())
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: a folder in its place is as unreadable
        path.unlink()
        path.mkdir()
    said = complaint(str(path))
    assert said.code is Exit.SETTING
    assert f"the kubeconfig {path} cannot be read" in said.sentence


def test_a_kubeconfig_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("\tnot: [a kubeconfig")
    assert f"the kubeconfig {path} is not YAML" in complaint(str(path)).sentence


def test_a_context_that_is_not_there(sandbox: Sandbox) -> None:
    said = complaint(str(sandbox.layout.kubeconfig), "production")
    assert "has no context 'production'" in said.sentence
    assert said.hint.startswith("It has '")


def test_the_wrong_authority(sandbox: Sandbox, tmp_path: Path) -> None:
    other = base64.b64encode(Authority("another cluster").certificate).decode()
    said = complaint(edited(sandbox, tmp_path, cluster={"certificate-authority-data": other}))
    assert said.code is Exit.UNREACHABLE
    assert f"the API server at {sandbox.state.server} shows a certificate that the CA in" in said.sentence
    assert said.sentence.endswith("did not sign.")


def test_the_wrong_name(sandbox: Sandbox, tmp_path: Path) -> None:
    said = complaint(edited(sandbox, tmp_path, cluster={"tls-server-name": "elsewhere.example.com"}))
    assert "shows a certificate for another name (tls-server-name elsewhere.example.com)" in said.sentence


def test_an_expired_token(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    sandbox.kubectl("-n", namespace, "create", "serviceaccount", "visitor")
    token = sandbox.kubectl("-n", namespace, "create", "token", "visitor").strip()
    said = complaint(edited(sandbox, tmp_path, user={"token": expired(sandbox, token)}))
    assert said.code is Exit.REFUSED
    assert "does not accept the credentials of user" in said.sentence
    assert "the token expired on 20" in said.sentence
    assert token.split(".")[2] not in str(said)


def test_a_token_that_is_none(sandbox: Sandbox, tmp_path: Path) -> None:
    said = complaint(edited(sandbox, tmp_path, user={"token": "nonsense"}))
    assert said.code is Exit.REFUSED
    assert "the token or certificate is wrong or expired" in said.sentence


def test_no_credentials_at_all(sandbox: Sandbox, tmp_path: Path) -> None:
    said = complaint(edited(sandbox, tmp_path, user={}))
    assert said.code is Exit.REFUSED
    assert "takes us for anonymous" in said.sentence


def test_a_certificate_of_another_cluster(sandbox: Sandbox, tmp_path: Path) -> None:
    pair = Authority("another cluster").issue("admin")
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    said = complaint(edited(sandbox, tmp_path, user=user))
    assert said.code is Exit.REFUSED


def test_nothing_listens_there(sandbox: Sandbox, tmp_path: Path) -> None:
    said = complaint(edited(sandbox, tmp_path, cluster={"server": "https://127.0.0.1:1"}))
    assert said.code is Exit.UNREACHABLE
    assert said.sentence == "the API server at https://127.0.0.1:1 refuses the connection: nothing listens there."


def test_plain_http_to_the_real_server(sandbox: Sandbox, tmp_path: Path) -> None:
    server = sandbox.state.server.replace("https", "http")
    said = complaint(edited(sandbox, tmp_path, cluster={"server": server}))
    assert "wants TLS" in said.sentence


def test_a_port_in_use(sandbox: Sandbox) -> None:
    port = sandbox.state.ports["kube-apiserver"]
    with pytest.raises(Complaint) as caught:
        asyncio.run(Server("127.0.0.1", port, Metrics(), admit=admit_all).start())
    assert caught.value.code is Exit.SETTING
    assert caught.value.sentence == f"cannot listen on 127.0.0.1:{port}: another process already listens there."
    assert "HOSTLER_HTTP_ADDRESS" in caught.value.hint

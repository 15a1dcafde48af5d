"""Clients for further clusters, from kubeconfig Secrets on the real API server (which plays both hub and spoke)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from hostler.kube.client import Client
from hostler.kube.clusters import FRESH, REFUSED, Clusters, Unavailable
from hostler.kube.config import check, load
from hostler.kube.errors import Unauthorized
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Object
from hostler.sandbox import Sandbox


class Stage:
    """The hub, its clusters, and a clock."""

    def __init__(self, hub: Client, **more: Any) -> None:
        self.now = 0.0
        self.clusters = Clusters(hub, clock=lambda: self.now, **more)

    def later(self, seconds: float = FRESH + 1) -> None:
        self.now += seconds


def play(sandbox: Sandbox, story: Callable[[Stage], Awaitable[None]], **more: Any) -> None:
    async def go() -> None:
        async with Client(load(str(sandbox.layout.kubeconfig), None)) as hub:
            stage = Stage(hub, **more)
            try:
                await story(stage)
            finally:
                await stage.clusters.close()

    asyncio.run(go())


def keep(sandbox: Sandbox, namespace: str, name: str, content: bytes, key: str = "value") -> None:
    sandbox.apply(
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "data": {key: base64.b64encode(content).decode()},
        }
    )  # fmt: skip


def kubeconfig(sandbox: Sandbox, user: dict[str, Any] | None = None) -> bytes:
    """The sandbox's own, with everything in it and no file named."""
    content = yaml.safe_load(sandbox.layout.kubeconfig.read_text())
    for entry in content["users"]:
        fields = entry["user"]
        for field in ("client-certificate", "client-key"):
            if field in fields:
                fields[f"{field}-data"] = base64.b64encode(
                    (sandbox.layout.root / fields.pop(field)).read_bytes()
                ).decode()
        entry["user"] = user or fields
    return yaml.safe_dump(content).encode()


async def why(stage: Stage, namespace: str, name: str) -> str:
    async with stage.clusters.client(namespace, name) as found:
        assert isinstance(found, Unavailable)
        return found.why


def test_a_client_is_made_once_and_made_again_when_the_secret_changes(sandbox: Sandbox, namespace: str) -> None:
    keep(sandbox, namespace, "spoke", kubeconfig(sandbox))
    sandbox.kubectl("-n", namespace, "create", "serviceaccount", "visitor")
    token = sandbox.kubectl("-n", namespace, "create", "token", "visitor").strip()

    async def story(stage: Stage) -> None:
        async with stage.clusters.client(namespace, "spoke") as first:
            assert isinstance(first, Client)
            assert (await check(first)).git.startswith("v1.")
            stage.later()
            async with stage.clusters.client(namespace, "spoke") as again:
                assert again is first
            keep(sandbox, namespace, "spoke", kubeconfig(sandbox, {"token": token}), key="value")
            stage.later()
            async with stage.clusters.client(namespace, "spoke") as second:
                assert isinstance(second, Client)
                assert second is not first
                assert (await check(second)).user.endswith(":visitor")
            await check(first)  # still open for who uses it
        assert not first._sessions, "closed when its last user was done"
        assert len(stage.clusters) == 1

    play(sandbox, story)


def test_a_refused_token_makes_the_secret_be_read_again_at_once(sandbox: Sandbox, namespace: str) -> None:
    keep(sandbox, namespace, "spoke", kubeconfig(sandbox, {"token": "old"}), key="kubeconfig")

    async def story(stage: Stage) -> None:
        async with stage.clusters.client(namespace, "spoke") as spoke:
            assert isinstance(spoke, Client)
            try:
                await spoke.get(CONFIG_MAP, "x", namespace, type=Object)
            except Unauthorized:
                pass
        keep(sandbox, namespace, "spoke", kubeconfig(sandbox), key="kubeconfig")
        async with stage.clusters.client(namespace, "spoke") as spoke:  # no time has passed
            assert isinstance(spoke, Client)
            await check(spoke)

    play(sandbox, story)


def test_what_is_wrong_is_a_sentence(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    bad = {
        "empty": b"",
        "text": b"hello",
        "command": kubeconfig(sandbox, {"exec": {"command": "id", "apiVersion": "client.authentication.k8s.io/v1"}}),
        "file": kubeconfig(sandbox, {"tokenFile": str(tmp_path / "token")}),
        "huge": b"#" * 100_000,
    }
    for name, content in bad.items():
        keep(sandbox, namespace, name, content)
    keep(sandbox, namespace, "other-key", kubeconfig(sandbox), key="config")

    async def story(stage: Stage) -> None:
        said = {name: await why(stage, namespace, name) for name in (*bad, "other-key", "missing")}
        where = f"Secret {namespace}"
        assert said["missing"] == f"{where}/missing with the kubeconfig does not exist."
        assert said["other-key"].startswith(f"{where}/other-key has neither `value` nor `kubeconfig` in it")
        assert said["empty"].startswith(f"{where}/empty has neither")
        assert "holds str, not the fields of a kubeconfig" in said["text"]
        assert "asks to run the command 'id', which is not allowed there" in said["command"]
        assert "names a local file in tokenFile, which is not allowed there" in said["file"]
        assert "larger than 64 KiB" in said["huge"]
        # Not looked at again at once, but in a minute: a certificate may be valid by then.
        for later, looked in ((1.0, 0.0), (REFUSED, REFUSED + 1)):
            stage.later(later)
            assert await why(stage, namespace, "command") == said["command"]
            assert stage.clusters._refused[namespace, "command"][1] == looked
        assert len(stage.clusters) == 0

    play(sandbox, story)


def test_a_deleted_secret_ends_the_client(sandbox: Sandbox, namespace: str) -> None:
    keep(sandbox, namespace, "spoke", kubeconfig(sandbox))

    async def story(stage: Stage) -> None:
        async with stage.clusters.client(namespace, "spoke") as spoke:
            assert isinstance(spoke, Client)
        sandbox.kubectl("-n", namespace, "delete", "secret", "spoke")
        stage.later()
        assert "does not exist" in await why(stage, namespace, "spoke")
        assert len(stage.clusters) == 0

    play(sandbox, story)


def test_there_are_never_too_many(sandbox: Sandbox, namespace: str) -> None:
    for number in range(3):
        keep(sandbox, namespace, f"spoke-{number}", kubeconfig(sandbox) + f"# {number}\n".encode())

    async def story(stage: Stage) -> None:
        client = stage.clusters.client
        async with client(namespace, "spoke-0"), client(namespace, "spoke-1"):
            assert await why(stage, namespace, "spoke-2") == "2 other clusters are in use at once, which is the limit."
        stage.later(1)
        async with client(namespace, "spoke-2") as third:
            assert isinstance(third, Client)
        assert len(stage.clusters) == 2
        stage.later(601)
        await stage.clusters.sweep()
        assert len(stage.clusters) == 0

    play(sandbox, story, most=2)


def test_many_callers_of_one_new_cluster_share_a_client(sandbox: Sandbox, namespace: str) -> None:
    keep(sandbox, namespace, "spoke", kubeconfig(sandbox))

    async def story(stage: Stage) -> None:
        async def one() -> object:
            async with stage.clusters.client(namespace, "spoke") as found:
                return found

        assert len({id(found) for found in await asyncio.gather(*(one() for _ in range(20)))}) == 1

    play(sandbox, story)

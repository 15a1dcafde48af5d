"""GPU_NODE_LABEL is any label selector: our reading of one is the API server's."""

from __future__ import annotations

import asyncio

from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ApiError
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Object
from hostler.sandbox import Sandbox
from hostler.selectors import parse_selector

LABELS: dict[str, dict[str, str]] = {
    "bare": {},
    "a": {"gpu": "a", "cores": "16"},
    "b": {"gpu": "b", "example.org/spot": "", "cores": "many"},
    "empty": {"gpu": ""},
}
SELECTORS = (
    "gpu", "!gpu", "gpu=a", "gpu==a", "gpu!=a", "gpu=", "gpu in (a, b)", "gpu notin (a,b)", "gpu in ()", "cores>8",
    "cores<17", "gpu,example.org/spot", " gpu = b , !none ", "gpu,!example.org/spot", "example.org/spot=",
    "a b", "gpu=a,", ",", "gpu in a", "gpu=(a)", "-gpu", "gpu=a-", "cores>many", "UPPER.org/x", "a/b/c",
)  # fmt: skip


def ours(text: str) -> list[str] | None:
    try:
        found = parse_selector(text)
    except ValueError:
        return None
    return sorted(name for name, labels in LABELS.items() if all(one.holds(labels) for one in found))


def test_every_selector_picks_what_the_api_server_picks(sandbox: Sandbox, namespace: str) -> None:
    for name, labels in LABELS.items():
        metadata = {"name": name, "namespace": namespace, "labels": {"own": "yes", **labels}}
        sandbox.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async def theirs() -> dict[str, list[str] | None]:
        found: dict[str, list[str] | None] = {}
        async with Client(load(str(sandbox.kubeconfig))) as client:
            for text in SELECTORS:
                try:
                    listed = await client.list(CONFIG_MAP, namespace, type=Object, labels=text)
                    names = {one.metadata.name for one in listed} & LABELS.keys()  # it has some of its own
                    found[text] = sorted(names)
                except ApiError:
                    found[text] = None
        return found

    assert {text: ours(text) for text in SELECTORS} == asyncio.run(theirs())

"""Kinds as people spell them, and why nothing is said about a thing that exists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from aiohttp import web

from hostler.capabilities import CAPABILITIES, read_settings
from hostler.cli import kinds
from hostler.cli.explain import ASKING
from hostler.cli.unmanaged import node_of_vm, why_unmanaged
from hostler.errors import Complaint, Exit
from hostler.explain.wire import VERSION_HEADER
from tests.unit.answering import answering

HOST = "/apis/metal3.io/v1alpha1/namespaces/rack-a/baremetalhosts/host-1"
OURS = {VERSION_HEADER: "1"}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("no", "node"), ("NO", "node"), ("nodes", "node"), ("bmh", "baremetalhost"), ("m3m", "metal3machine"),
        ("csr", "certificatesigningrequest"), ("vm", "vm"), ("ds", "daemonset"), ("somethingnew", "somethingnew"),
    ],
)  # fmt: skip
def test_a_short_name_means_the_kind(word: str, name: str) -> None:
    assert kinds.spelled(word).name == name


def test_every_word_means_one_kind_of_a_capability() -> None:
    words = [word for one in kinds.KINDS for word in (one.name, *one.short)]
    assert len(words) == len(set(words))
    assert {capability for one in kinds.KINDS for capability in one.capabilities} <= {one.name for one in CAPABILITIES}


def in_another_thread(work: Callable[[Any, Path], object], answer: Any, folder: Path) -> object:
    """What asks by itself runs beside the API server, which is the operator too."""

    async def go() -> object:
        async with answering(answer) as client:
            server = client.connection.server
            path = folder / "kubeconfig"
            path.write_text(yaml.safe_dump({
                "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
            }))  # fmt: skip
            settings = read_settings({"operator": server}, {"KUBECONFIG": str(path)})
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("KUBECONFIG", str(path))
                return await asyncio.to_thread(work, settings, path)

    return asyncio.run(go())


def unmanaged(tmp_path: Path, *, there: bool, on: bool, name: str = "rack-a/host-1") -> Complaint | None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/status":
            status = {"capabilities": [{"name": "metal", "enabled": on, "writes": on, "reason": ""}]}
            body = {
                "version": "1", "identity": "i", "leads": True, "leadership": "", "dryRun": False, "paused": False,
                "pause": "", "status": status,
            }  # fmt: skip
            return web.json_response(body, headers=OURS)
        if request.path == HOST and there:
            return web.json_response({"metadata": {"name": "host-1", "namespace": "rack-a"}})
        body = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}
        return web.json_response(body, status=404)

    found = in_another_thread(
        lambda settings, _: why_unmanaged(settings, kinds.spelled("bmh"), name), answer, tmp_path
    )  # fmt: skip
    assert found is None or isinstance(found, Complaint)
    return found


def test_what_exists_while_its_capability_is_off_says_so(tmp_path: Path) -> None:
    found = unmanaged(tmp_path, there=True, on=False)
    assert found is not None
    assert found.sentence == (
        "baremetalhost rack-a/host-1 exists, but is not managed by Hostler, because metal is off."
    )  # fmt: skip
    assert found.code is Exit.REFUSED


def test_what_exists_and_is_not_decided_says_so(tmp_path: Path) -> None:
    found = unmanaged(tmp_path, there=True, on=True)
    assert found is not None
    assert "because it is new, or outside of HOSTLER_METAL_NAMESPACES" in found.sentence


def test_of_what_does_not_exist_the_operator_s_answer_stands(tmp_path: Path) -> None:
    assert unmanaged(tmp_path, there=False, on=False) is None
    assert unmanaged(tmp_path, there=True, on=False, name="host-1") is None, "no namespace, so no object"


def test_a_vm_stands_for_its_proven_node(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        node = "w1" if request.path == "/v1/hosts/gpu-0" else ""
        host = {"id": "vm:1", "name": "gpu", "kind": "vm", "state": "provisioned", "node": node, "notes": ["A doubt."]}
        return web.json_response({"version": "1", "at": 1.0, "row": {"host": host}}, headers=OURS)

    assert in_another_thread(lambda settings, _: node_of_vm(settings, "gpu-0"), answer, tmp_path) == "w1"
    with pytest.raises(Complaint, match=r"VM gpu-1 exists, .* no node is proven to run in it. A doubt\."):
        in_another_thread(lambda settings, _: node_of_vm(settings, "gpu-1"), answer, tmp_path)


def test_the_shell_completes_kinds_and_then_names(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/api/v1/nodes":
            items = [{"metadata": {"name": name}} for name in ("w2", "w1", "cp")]
            return web.json_response({"metadata": {}, "items": items})
        return web.json_response({"kind": "Status", "code": 403}, status=403)

    def look(_: Any, path: Path) -> list[list[str]]:
        context: Any = SimpleNamespace(params={"kubeconfig": str(path), "nodes": ["w1"]})
        words = ("m3", "no/w", "bmh/")
        return [*(kinds.complete_thing(context, word) for word in words), kinds.complete_node(context, "w")]

    found = in_another_thread(look, answer, tmp_path)
    m3 = ["m3m/", "m3machine/", "m3machines/", "m3r/", "m3remediation/"]
    assert found == [m3, ["no/w1", "no/w2"], [], ["w2"]]


def test_what_explain_takes_is_completed() -> None:
    assert {one.key for one in ASKING} >= {one.key for one in kinds.ASKING} - {"config"}

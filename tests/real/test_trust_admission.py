"""A kubelet writes none of Hostler's marks on its own Node; what is in the chart and what doctor says of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.host.holds import HOLDS
from hostler.host.maintenance import STATE
from hostler.install.admission import NODE_MARKS, POLICIES
from hostler.install.grants import rights_for
from hostler.kube.kinds import NODE
from hostler.sandbox import Sandbox
from tests.real.accounts import charted, kubeconfig_of, new_account
from tests.real.admitting import admission_policies, patch
from tests.real.conftest import Eventually
from tests.real.operating import hostler, kubeconfig_as

MakeNode = Callable[..., str]
REFUSED = f"ValidatingAdmissionPolicy '{NODE_MARKS.name}' with binding '{NODE_MARKS.name}' denied request"


def doctor(sandbox: Sandbox) -> list[tuple[str, str]]:
    found = json.loads(hostler(sandbox.kubeconfig, "doctor", "-o", "json").stdout)
    return [(one["level"], one["why"]) for one in found if one["what"] == "admission policies"]


@pytest.fixture(scope="module")
def policies(sandbox: Sandbox) -> Iterator[list[tuple[str, str]]]:
    """In force. What doctor says before they are."""
    before = doctor(sandbox)
    with admission_policies(sandbox):
        yield before


class Kubelet:
    """kubectl as one node: its user, and the group that every kubelet is in."""

    def __init__(self, sandbox: Sandbox, folder: Path, node: str) -> None:
        self._login = kubeconfig_as(sandbox, folder, f"system:node:{node}", "system:nodes")
        self._sandbox, self._node = sandbox, node

    def patch_status(self, body: dict[str, Any]) -> str:
        return patch(self._login, NODE, self._node, body, "status")

    def __call__(self, *words: str, input: str | None = None) -> str:
        """What it was answered, be it a refusal."""
        try:
            return self._sandbox.kubectl("--kubeconfig", str(self._login), *words, input=input)
        except Complaint as refused:
            return str(refused)


@pytest.fixture
def node(sandbox: Sandbox, make_node: MakeNode, policies: object, tmp_path: Path, eventually: Eventually) -> str:
    name = make_node()
    kubelet = Kubelet(sandbox, tmp_path, name)
    probe = ("label", "node", name, "hostler.dev/probe=x", "--dry-run=server")
    eventually(lambda: REFUSED in kubelet(*probe), 60, "the API server follows the policy")
    return name


def test_a_kubelet_writes_no_marks_on_its_node(sandbox: Sandbox, node: str, tmp_path: Path) -> None:
    kubelet = Kubelet(sandbox, tmp_path, node)
    assert "yes" in kubelet("auth", "can-i", "patch", "nodes")
    assert "yes" in kubelet("auth", "can-i", "patch", "nodes", "--subresource=status")
    for key in (HOLDS, STATE, "reclaim.hostler.dev/anything"):
        assert REFUSED in kubelet("annotate", "node", node, f"{key}=x")
        for part in ("labels", "annotations"):
            assert NODE_MARKS.name in kubelet.patch_status({"metadata": {part: {key: "x"}}})
    said = kubelet("label", "node", node, "hostler.dev/maintenance-policy=x")
    assert "a kubelet may not write labels of hostler.dev or vsphere-maintenance.boeye.net on a Node" in said
    found = sandbox.get("node", node)["metadata"]
    assert not [key for key in (*found["labels"], *found.get("annotations", {})) if "hostler.dev/" in key]


def test_a_kubelet_does_its_work_on_a_marked_node(sandbox: Sandbox, node: str, tmp_path: Path) -> None:
    kubelet = Kubelet(sandbox, tmp_path, node)
    sandbox.kubectl("annotate", "node", node, f"{STATE}=draining", f"{HOLDS}-", "hostler.dev/other=x")
    sandbox.kubectl("label", "node", node, "hostler.dev/pool=a")
    assert kubelet.patch_status({"status": {"nodeInfo": {"bootID": "another"}}}) == "patched"
    assert "labeled" in kubelet("label", "node", node, "example.org/mine=yes")
    assert "annotated" in kubelet("annotate", "node", node, "nothostler.dev/mine=yes")
    for words in (("annotate", "node", node, f"{STATE}-"), ("annotate", "node", node, f"{STATE}=x", "--overwrite"),
                  ("label", "node", node, "hostler.dev/pool-")):  # fmt: skip
        assert REFUSED in kubelet(*words)
    assert sandbox.get("node", node)["metadata"]["annotations"][STATE] == "draining"


def test_a_kubelet_registers_without_marks_only(sandbox: Sandbox, node: str, tmp_path: Path) -> None:
    new = f"{node}-new"
    kubelet = Kubelet(sandbox, tmp_path, new)
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": new, "labels": {"a": "b"}}}
    marked = {**made, "metadata": {"name": new, "labels": {"hostler.dev/pool": "a"}}}
    assert REFUSED in kubelet("create", "-f", "-", input=json.dumps(marked))
    assert "created" in kubelet("create", "-f", "-", input=json.dumps(made))
    sandbox.kubectl("delete", "node", new)


def test_an_administrator_and_the_operator_write_marks(
    sandbox: Sandbox, node: str, namespace: str, tmp_path: Path
) -> None:
    held = hostler(sandbox.kubeconfig, "hold", node, "--why", "a test")
    assert held.returncode == 0, held.stderr
    assert HOLDS in sandbox.get("node", node)["metadata"]["annotations"]
    rights = [one for one in rights_for(()) if one.resource in ("nodes", "nodes/status")]
    with charted(sandbox, new_account(namespace, kind="as-operator"), rights) as user:
        body = {"metadata": {"annotations": {HOLDS: None, STATE: "draining"}}}
        assert patch(kubeconfig_of(sandbox, tmp_path, user), NODE, node, body) == "patched"


def test_doctor_says_whether_they_are_in_force(
    sandbox: Sandbox, policies: list[tuple[str, str]], eventually: Eventually
) -> None:
    assert [level for level, _ in policies] == ["warning", "warning"]
    assert f"Policy {NODE_MARKS.name} is missing: a kubelet can write" in str(policies)
    assert doctor(sandbox) == [("ok", f"In force: {', '.join(one.name for one in POLICIES)}.")]
    status = eventually(
        lambda: sandbox.get("validatingadmissionpolicy", NODE_MARKS.name).get("status", {}), 60, "type-checked"
    )
    assert not status.get("typeChecking", {}).get("expressionWarnings")

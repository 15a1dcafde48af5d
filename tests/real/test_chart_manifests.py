"""The chart compared with `hostler manifests`, object by object, for nothing set and for every file of chart/ci.

Both are written by hand, and this is what keeps them the same. A case lists what only the chart can do; anything else
that differs fails.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler import __version__
from hostler.sandbox import Sandbox
from tests.real.helming import CHART, SERVED, SETS, Helm, Object, rendered
from tests.real.operating import hostler

POD = "spec.template.spec"
CONTAINER = f"{POD}.containers.hostler"
DIGEST = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
BINDING_AND_ROLE = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


@dataclass(frozen=True)
class Case:
    """The flags of `hostler manifests` that ask for the same as a file of chart/ci, or as `values`."""

    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    image: str = f"hostler:{__version__}"
    only_chart: frozenset[str] = frozenset()  # objects
    left_out: frozenset[str] = frozenset()  # objects that its values leave to others
    differ: frozenset[str] = frozenset()  # fields


def mounted(*names: str) -> frozenset[str]:
    return frozenset(f"Deployment hostler: {field}.{name}" for name in names
                     for field in (f"{CONTAINER}.volumeMounts", f"{POD}.volumes"))  # fmt: skip


def fields(kind: str, *paths: str) -> frozenset[str]:
    return frozenset(f"{kind}: {path}" for path in paths)


# The address of the vCenter stands in the values, and not in the Secret.
HOST = fields("Deployment hostler", *(f"{CONTAINER}.env.VCENTER_HOST.{it}" for it in ("value", "valueFrom")))
CASES = {
    "nothing": Case(),
    "default": Case(),
    "maintenance": Case((
        "--only", "maintenance", "--vcenter-secret", "vsphere-credentials", "--vcenter-ca", "vcenter-ca",
        "--gpu-node-label", "nvidia.com/gpu.present=true", "--drain-timeout-seconds", "2592000", "--lease-name", "gpu",
    )),
    "a label without a value": Case(
        ("--only", "maintenance", "--vcenter-secret", "login", "--gpu-node-label", "gpu"),
        ("vcenter.existingSecret=login", "settings.GPU_NODE_LABEL=gpu"),
    ),
    "dry-run": Case(
        ("--only", "maintenance", "--vcenter-secret", "hostler-vcenter", "--dry-run"),
        only_chart=frozenset({"Secret hostler-vcenter"}),
        left_out=frozenset({
            "ServiceAccount hostler", "PodDisruptionBudget hostler", "Role hostler", "RoleBinding hostler",
            "Role kube-node-lease/hostler", "RoleBinding kube-node-lease/hostler", "ClusterRoleBinding hostler",
            *(f"ClusterRole hostler{it}" for it in ("", "-viewer", "-operator", "-admin", "-metrics-reader")),
            *(f"CustomResourceDefinition {it}.hostler.dev" for it in ("fleets", "pauses")),
        }),
        differ=HOST | fields(
            "Deployment hostler", "spec.replicas", f"{POD}.serviceAccountName", f"{CONTAINER}.env.VCENTER_TLS_VERIFY"
        ),
    ),
    "bare-metal": Case(
        ("--only", "join,metal", "--metal-selection", "spread", "--metal-namespaces", "racks,edge", "--metal-webhooks",
         "--no-join-serving"),
        image=f"registry.example.com/hostler@{DIGEST}",
        differ=fields(
            "Deployment hostler", *(f"{POD}.{it}" for it in ("affinity.nodeAffinity", "nodeSelector", "tolerations"))
        ),
    ),
    "reclaim": Case(
        ("--only", "reclaim"),
        only_chart=frozenset({"Ingress hostler-hub"}),
        differ=fields("ConfigMap hostler-settings", "data.HUB_URL"),
    ),
    "a dry run on OpenShift": Case(
        ("--only", "join,metal,reclaim", "--openshift", "--dry-run", "--lease-name", "mine", "--metal-webhooks"),
        ("capabilities.join=true", "capabilities.metal=true", "capabilities.reclaim=true", "openshift=true",
         "dryRun=true", "settings.HOSTLER_LEASE_NAME=mine", "settings.HOSTLER_METAL_WEBHOOKS=true"),
    ),
    "everything": Case(
        ("--only", "maintenance,ingress,join,metal,platform,reclaim", "--openshift", "--cluster-name", "prod",
         "--vcenter-secret", "vsphere-credentials", "--hub-artifacts", "/artifacts",
         "--ingress-workloads", "Deployment/kube-system/traefik,DaemonSet/ingress/nginx"),
        only_chart=frozenset({
            "ClusterRoleBinding hostler-metrics", "ConfigMap hostler-dashboard", "NetworkPolicy hostler",
            "PrometheusRule hostler", "Route hostler-hub", "Secret hostler-metrics", "ServiceAccount hostler-metrics",
            "ServiceMonitor hostler",
        }),
        differ=HOST | mounted("artifacts", "history", "hub", "hub-ca", "vcenters", "web")
        | fields("Service hostler-hub", "metadata.annotations", "spec.ports.hub.appProtocol")
        | fields("ServiceAccount hostler", "metadata.annotations")
        | fields("ConfigMap hostler-settings", "data.HUB_CA", "data.HUB_URL", *(f"data.HOSTLER_{it}" for it in (
            "HUB_CERTIFICATE", "HUB_KEY", "WEB_AUTH", "WEB_KEY_FILE",
        )))
        | fields("Deployment hostler", *(f"{CONTAINER}.env.{it}" for it in (
            "HOSTLER_HISTORY_URL", "HTTPS_PROXY", "NO_PROXY", "VCENTERS_FILE", "VCENTER_CERTIFICATE_SHA256",
        )))
        | fields("Deployment hostler", *(f"{POD}.{it}" for it in (
            "imagePullSecrets", "priorityClassName", "topologySpreadConstraints",
        )))
        | fields("Deployment hostler", "spec.template.metadata.annotations",
                 "spec.template.metadata.labels.example.com/team"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def manifests(case: Case, namespace: str) -> list[Object]:
    done = hostler(Path("none"), "manifests", "--image", case.image, "--operator-namespace", namespace, *case.flags)
    assert done.returncode == 0, done.stderr
    return rendered(done.stdout)


def by_name(found: list[Object]) -> dict[str, Object]:
    named = {}
    for one in found:
        about = one["metadata"]
        place = f"{about['namespace']}/" if about.get("namespace", "there") != "there" else ""
        named[f"{one['kind']} {place}{about['name']}"] = comparable(one)
    assert len(named) == len(found)
    return named


def comparable(one: Object) -> Object:
    """Without what Helm marks as its own; rights as a set, since the chart has a rule for each capability's reason."""
    one = copy.deepcopy(one)
    templates = [one["spec"]["template"]["metadata"]] if one["kind"] == "Deployment" else []
    for about in (one["metadata"], *templates):
        about.get("annotations", {}).pop("checksum/settings", None)  # of the ConfigMap, which is compared itself
        about.get("annotations", {}).pop("helm.sh/resource-policy", None)
        labels = about.get("labels", {})
        for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            labels.pop(label, None)
        if one["kind"] in BINDING_AND_ROLE:  # `hostler rights -o yaml` prints them too, of no release
            about["labels"] = {key: value for key, value in labels.items() if not key.startswith("app.kubernetes.io/")}
        for key in ("annotations", "labels"):
            if not about.get(key):
                about.pop(key, None)
    if "rules" in one:
        one["rules"] = sorted({json.dumps(rule, sort_keys=True) for rule in one["rules"]})
    return one


def differences(mine: Any, theirs: Any, path: str) -> Iterator[str]:
    """The fields that are not the same; entries of a list are told apart by their names."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in mine.keys() | theirs.keys():
            where = f"{path}.{key}".removeprefix(".")
            if key in mine and key in theirs:
                yield from differences(mine[key], theirs[key], where)
            else:
                yield where
    elif have_names(mine) and have_names(theirs):
        yield from differences(keyed(mine), keyed(theirs), path)
    elif mine != theirs:
        yield path


def keyed(entries: list[Object]) -> dict[str, Object]:
    return {one["name"]: one for one in entries}


def have_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value)


@pytest.mark.parametrize("name", CASES)
def test_chart_and_manifests_make_the_same_objects(helm: Helm, name: str) -> None:
    case = CASES[name]
    given = [part for one in case.values for part in ("--set", one)]
    values = ("-f", str(SETS[name])) if name in SETS else given
    theirs = by_name(rendered(helm("template", "hostler", str(CHART), "-n", "there", *SERVED, *values)))
    mine = by_name(manifests(case, "there"))
    assert theirs.keys() - mine.keys() == case.only_chart
    assert mine.keys() - theirs.keys() == case.left_out | {"Namespace there"}, "Helm makes no namespace by a template"
    found = {
        f"{key}: {path}" for key in mine.keys() & theirs.keys() for path in differences(mine[key], theirs[key], "")
    }
    assert found == case.differ


def test_every_file_of_values_is_compared() -> None:
    assert SETS.keys() <= CASES.keys()


def test_a_difference_is_seen_in_depth() -> None:
    """That the comparison can fail."""
    one = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["run"]}
    other = {"env": [{"name": "B", "value": "3"}, {"name": "A", "value": "1"}], "args": ["run", "x"]}
    assert set(differences(one, other, "")) == {"env.B.value", "args"}


@pytest.mark.parametrize("name", ["nothing", "maintenance", "bare-metal", "a dry run on OpenShift"])
def test_a_real_api_server_takes_the_manifests(sandbox: Sandbox, namespace: str, name: str) -> None:
    elsewhere = ("openshift-", "racks", "edge")  # namespaces that the sandbox does not have
    here = [
        one
        for one in manifests(CASES[name], namespace)
        if not one["metadata"].get("namespace", "").startswith(elsewhere)
    ]
    words = ("apply", "--server-side", "--force-conflicts", "--field-manager=manifests", "--dry-run=server")
    said = sandbox.kubectl(*words, "--validate=strict", "-f", "-", input=yaml.safe_dump_all(here))
    assert said.count("serverside-applied") == len(here)

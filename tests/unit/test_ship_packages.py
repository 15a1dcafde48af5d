"""What package registries read of a release, by the rules that they publish."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hostler import __version__
from hostler.apis.fleet import Fleet, Pause
from hostler.capabilities import CAPABILITIES
from hostler.install.crd import definitions
from hostler.install.grants import rights_for
from hostler.install.rights import OWN
from hostler.ship import artifact_hub, issue_forms, krew, olm, state_metrics
from hostler.ship.image import needed

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "https://github.com/OWNER/REPOSITORY"
Json = dict[str, Any]


# -- Artifact Hub: https://artifacthub.io/docs/topics/annotations/helm

CAPABILITY_LEVELS = {"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}


def test_the_chart_s_annotations_are_texts_that_artifact_hub_reads() -> None:
    made = yaml.safe_load((ROOT / "chart/Chart.yaml").read_text())["annotations"]
    assert all(isinstance(value, str) for value in made.values())
    assert made["artifacthub.io/operatorCapabilities"] in CAPABILITY_LEVELS
    crds = yaml.safe_load(made["artifacthub.io/crds"])
    assert [set(one) for one in crds] == [{"kind", "version", "name", "displayName", "description"}] * len(
        definitions()
    )
    assert {one["name"] for one in crds} == {one["metadata"]["name"] for one in definitions().values()}
    examples = yaml.safe_load(made["artifacthub.io/crdsExamples"])
    for example, record in zip(examples, (Fleet, Pause), strict=True):
        msgspec.convert(example, record)
        schema = {kind.kind: one for kind, one in definitions().items()}[example["kind"]]
        fields = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert example["spec"].keys() <= fields.keys()


def test_the_chart_s_page_has_every_value_and_every_capability() -> None:
    page = artifact_hub.readme(ROOT / "chart")
    shown = dict(re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", page, re.MULTILINE))

    def leaves(value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict) and value:
            return {key: one for part, inner in value.items() for key, one in leaves(inner, f"{name}.{part}").items()}
        return {name.removeprefix("."): value}

    values = leaves(yaml.safe_load((ROOT / "chart/values.yaml").read_text()), "")
    assert {name: yaml.safe_load(text) for name, text in shown.items()} == values
    assert {f"capabilities.{one.name}" for one in CAPABILITIES if not one.always} <= shown.keys()


# -- krew: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest


def test_krew_s_manifest_names_the_archive_by_its_hash(tmp_path: Path) -> None:
    wheel = tmp_path / f"hostler-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"not a wheel")
    manifest = yaml.safe_load(krew.write_plugin(tmp_path, ROOT, wheel, SOURCE).read_text())
    archive = (tmp_path / krew.ARCHIVE).read_bytes()
    (platform,) = manifest["spec"]["platforms"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"v\d+\.\d+\.\d+", manifest["spec"]["version"])
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert platform["uri"].endswith(f"/v{__version__}/{krew.ARCHIVE}")
    assert {one["key"] for one in platform["selector"]["matchExpressions"]} <= {"os", "arch"}
    assert "\n" not in manifest["spec"]["shortDescription"]
    assert manifest["spec"]["shortDescription"][-1] != "."
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as files:
        names = {one.name: one.mode for one in files}
    assert names[platform["bin"]] == 0o755
    assert {wheel.name, "requirements.txt", "LICENSE"} <= names.keys()
    krew.write_plugin(tmp_path, ROOT, wheel, SOURCE)
    assert (tmp_path / krew.ARCHIVE).read_bytes() == archive, "the same files give the same bytes"


def test_the_plugin_s_libraries_are_whole_and_have_hashes() -> None:
    text = krew.runtime_requirements((ROOT / "requirements.lock").read_text(), needed("hostler"))
    assert re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE) == sorted(needed("hostler"))
    for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry


# -- OLM: https://olm.operatorframework.io/docs/tasks/creating-operator-bundle and .../creating-operator-manifests

SUPPORTED = {"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ConfigMap",
             "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Role", "RoleBinding", "Secret", "Service",
             "ServiceAccount", "ServiceMonitor", "VerticalPodAutoscaler"}  # fmt: skip
MODES = {"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    folder = olm.write_bundle(tmp_path_factory.mktemp("olm"), "registry.example.com/hostler", SOURCE)
    return {str(path.relative_to(folder)): yaml.safe_load(path.read_text()) for path in folder.rglob("*.yaml")}


def service_version(bundle: dict[str, Json]) -> Json:
    (made,) = [one for one in bundle.values() if one.get("kind") == "ClusterServiceVersion"]
    return made


def test_a_bundle_has_only_what_olm_applies_and_no_namespace(bundle: dict[str, Json]) -> None:
    objects = [one for name, one in bundle.items() if name.startswith("manifests/")]
    assert {one["kind"] for one in objects} <= SUPPORTED
    assert not [one for one in objects if "namespace" in one["metadata"]]
    account = {"ServiceAccount": "hostler", "ClusterRole": "hostler"}
    assert not [one for one in objects if account.get(one["kind"]) == one["metadata"]["name"]], "OLM makes these"
    about = bundle["metadata/annotations.yaml"]["annotations"]
    assert about["operators.operatorframework.io.bundle.package.v1"] == "hostler"
    channel = about["operators.operatorframework.io.bundle.channel.default.v1"]
    assert channel in about["operators.operatorframework.io.bundle.channels.v1"].split(",")


def test_a_service_version_owns_each_kind_with_an_example(bundle: dict[str, Json]) -> None:
    made = service_version(bundle)
    assert made["metadata"]["name"] == f"hostler.v{__version__}"
    assert made["spec"]["version"] == __version__
    owned = {one["name"]: (one["kind"], one["version"]) for one in made["spec"]["customresourcedefinitions"]["owned"]}
    there = {one["metadata"]["name"]: (one["spec"]["names"]["kind"], one["spec"]["versions"][0]["name"])
             for one in bundle.values() if one.get("kind") == "CustomResourceDefinition"}  # fmt: skip
    assert owned == there
    examples = json.loads(made["metadata"]["annotations"]["alm-examples"])
    assert {one["kind"] for one in examples} == {kind for kind, _ in owned.values()}
    assert made["metadata"]["annotations"]["capabilities"] in CAPABILITY_LEVELS
    modes = {one["type"]: one["supported"] for one in made["spec"]["installModes"]}
    assert modes == {mode: mode == "AllNamespaces" for mode in MODES}
    oldest = yaml.safe_load((ROOT / "chart/Chart.yaml").read_text())["kubeVersion"]
    assert made["spec"]["minKubeVersion"] == oldest.removeprefix(">=").removesuffix("-0")


def test_a_bundle_grants_what_is_needed_with_nothing_switched_on(bundle: dict[str, Json]) -> None:
    spec = service_version(bundle)["spec"]["install"]["spec"]
    needed_here = [one for one in rights_for(()) if not one.openshift]
    assert {one.namespace for one in needed_here} <= {"", OWN}, "OLM grants nothing in other namespaces"
    for place, rules in (("", "clusterPermissions"), (OWN, "permissions")):
        (granted,) = spec[rules]
        (deployment,) = spec["deployments"]
        assert granted["serviceAccountName"] == deployment["spec"]["template"]["spec"]["serviceAccountName"]
        found = {(one["resources"][0], verb) for one in granted["rules"] for verb in one["verbs"]}
        assert found == {(one.plural, verb) for one in needed_here if one.namespace == place for verb in one.verbs}


# -- kube-state-metrics: its docs/metrics/extend/customresourcestate-metrics.md


def walk(schema: Json, path: list[str]) -> Json | None:
    """The schema of a field; None: there is no such field."""
    for part in path:
        schema = schema.get("properties", {}).get(part) or {}
    return schema or None


def test_kube_state_metrics_reads_fields_that_exist() -> None:
    made = state_metrics.configuration()
    assert made["kind"] == "CustomResourceStateMetrics"
    names = []
    for resource in made["spec"]["resources"]:
        schema = next(
            one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for kind, one in definitions().items()
            if kind.kind == resource["groupVersionKind"]["kind"]
        )
        schema["properties"]["metadata"] = {"properties": {"name": {"type": "string"}, "creationTimestamp": {"x": 1}}}
        assert all(walk(schema, path) for path in resource["labelsFromPath"].values())
        for metric in resource["metrics"]:
            names.append(f"{resource['metricNamePrefix']}_{metric['name']}")
            each = metric["each"]
            inner = each[each["type"].lower()]
            found = walk(schema, inner.get("path", []))
            assert found, metric["name"]
            for path in (*inner.get("labelsFromPath", {}).values(), inner.get("valueFrom", [])):
                assert walk(found.get("items", found), path), (metric["name"], path)
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"kube_hostler_[a-z_]+", name) for name in names)


# -- issues


def test_the_forms_name_every_capability() -> None:
    for _, text in issue_forms.list_forms():
        (options,) = [one["attributes"]["options"] for one in yaml.safe_load(text)["body"] if one["type"] == "dropdown"]
        assert {one.name for one in CAPABILITIES} <= set(options)

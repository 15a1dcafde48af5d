"""From one provider to another by clusterctl, and from one version to the next, with objects that are there already."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.apis.metal3 import GROUP
from hostler.errors import Complaint, Exit
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from hostler.ship import components
from tests.real import clusterctl_go_provider as go_provider
from tests.real.clusterctl_world import NAMESPACE, PROVIDER, definitions, init, providers
from tests.real.conftest import Eventually
from tests.real.deployed import run_in_place_of
from tests.real.operating import hostler, refused
from tests.real.shell import run_shell
from tests.real.whole_objects import whole_object

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
Json = dict[str, Any]


def remove_providers(bare: Sandbox, eventually: Eventually) -> None:
    """With all that is of them: kinds, objects, namespaces."""
    for name in providers(bare):
        bare.clusterctl("delete", "--infrastructure", name, "--include-crd", "--include-namespace")
    eventually(lambda: not definitions(bare), what="no kind of a provider is left")


def whole_objects(box: Sandbox, namespace: str, version: str = "v1beta2") -> None:
    """One of each kind, with every field of spec and status; nobody does anything for it."""
    for definition in go_provider.published_definitions():
        made = whole_object(definition, version, "whole", namespace)
        made["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
        status = made.pop("status", None)
        create(box, [made])
        if status:
            plural, _, group = definition["metadata"]["name"].partition(".")
            patch = json.dumps({"status": status})
            box.kubectl(
                "patch",
                f"{plural}.{version}.{group}",
                "whole",
                "-n",
                namespace,
                "--subresource=status",
                "--type=merge",
                "-p",
                patch,
            )


def read_all(box: Sandbox, namespace: str, version: str = "v1beta2") -> dict[str, Json]:
    found = {}
    for definition in go_provider.published_definitions():
        plural = definition["spec"]["names"]["plural"]
        found[plural] = box.read(f"/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}/whole")
    return found


def test_it_takes_the_place_of_the_go_provider(
    bare: Sandbox, place: str, tmp_path: Path, eventually: Eventually
) -> None:
    remove_providers(bare, eventually)
    init(bare, "metal3")
    whole_objects(bare, place)
    before = read_all(bare, place)
    assert all(one["spec"] for one in before.values())
    bare.clusterctl("delete", "--infrastructure", "metal3")
    assert providers(bare) == {}
    assert read_all(bare, place) == before, "clusterctl keeps kinds and objects"
    init(bare, PROVIDER)
    assert read_all(bare, place) == before
    for one in definitions(bare).values():
        assert one["metadata"]["labels"]["cluster.x-k8s.io/provider"] == f"infrastructure-{PROVIDER}"
        for version in one["spec"]["versions"]:
            assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] == "What is wanted."
    with run_in_place_of(bare, components.LABEL, NAMESPACE, "hostler", tmp_path) as operator:
        for plural in before:  # still good for the API server and our webhooks, and none of it is dropped
            bare.kubectl("annotate", f"{plural}.{GROUP}", "whole", "-n", place, "example.org/touched=")
        assert refused(operator) == []
    after = read_all(bare, place)  # that it is paused, the operator says in the status
    assert {plural: one["spec"] for plural, one in after.items()} == {
        plural: one["spec"] for plural, one in before.items()
    }
    bare.kubectl("delete", ",".join(f"{plural}.{GROUP}" for plural in before), "whole", "-n", place, "--timeout=60s")


def older_definitions() -> list[Json]:
    """As they were before contract v1beta2: only v1beta1, in which every object is stored."""
    found = copy.deepcopy(go_provider.published_definitions())
    for definition in found:
        (older,) = [each for each in definition["spec"]["versions"] if each["name"] == "v1beta1"]
        older |= {"storage": True, "served": True, "deprecated": False}
        definition["spec"] |= {"versions": [older], "conversion": {"strategy": "None"}}
        definition.pop("status", None)
    return found


def stored_versions(box: Sandbox) -> set[str]:
    return {" ".join(definition["status"]["storedVersions"]) for definition in definitions(box).values()}


def first(box: Sandbox) -> tuple[int, dict[str, Json]]:
    """What `takeover --check` says of the kinds that has to be done first, and its exit code."""
    done = hostler(box.kubeconfig, "metal", "takeover", "--check", "--output", "json")
    assert done.stdout, done.stderr
    lines = [line for line in json.loads(done.stdout) if line["effect"] == "first"]
    return done.returncode, {line["what"].rpartition("/")[2]: line for line in lines}


def content(objects: dict[str, Json]) -> dict[str, Json]:
    """What their authors wrote. That they are paused, the operator adds to the conditions."""
    added = ("conditions", "v1beta2", "deprecated")
    return {
        plural: {
            "spec": each["spec"],
            **{name: value for name, value in each.get("status", {}).items() if name not in added},
        }
        for plural, each in objects.items()
    }


def test_objects_stored_as_v1beta1_by_older_kinds_are_rewritten_unchanged(
    bare: Sandbox, place: str, tmp_path: Path, eventually: Eventually
) -> None:
    remove_providers(bare, eventually)
    create(bare, older_definitions())
    eventually(lambda: len(definitions(bare)) == 9 and is_established(bare), 60, "the older kinds are served")
    whole_objects(bare, place, "v1beta1")
    before = read_all(bare, place, "v1beta1")
    code, found = first(bare)
    assert (code, len(found)) == (Exit.FAILED, 9)
    assert {line["why"].partition(",")[0] for line in found.values()} == {"It stores v1beta1"}

    bare.clusterctl("init", "--infrastructure", PROVIDER)
    assert stored_versions(bare) == {"v1beta1 v1beta2"}
    assert content(read_all(bare, place, "v1beta1")) == content(before), "as it is stored, for who asks for it"
    with pytest.raises(Complaint, match="conversion webhook"):
        read_all(bare, place)
    with run_in_place_of(bare, components.LABEL, NAMESPACE, "hostler", tmp_path) as operator:
        newer = eventually(lambda: read_all(bare, place), 60, "converted")
        assert all(each["spec"] for each in newer.values())
        code, found = first(bare)
        assert code == Exit.FAILED
        assert {*found} == {*definitions(bare)}
        assert all("kubectl replace" in line["fix"] for line in found.values())
        doctor = hostler(bare.kubeconfig, "doctor", "--operator", operator.url, "--output", "json")
        (said,) = [finding for finding in json.loads(doctor.stdout) if finding["what"] == "stored versions"]
        assert said["level"] == "warning", said
        run_shell(bare, said["fix"], tmp_path)
        assert stored_versions(bare) == {"v1beta2"}
        assert first(bare) == (Exit.OK, {})
        assert content(read_all(bare, place)) == content(newer)
        assert content(read_all(bare, place, "v1beta1")) == content(before), "converted back, nothing is lost"
        assert refused(operator) == []
    # Nobody converts any more, so what can be read now is what is stored.
    assert content(read_all(bare, place)) == content(newer)
    bare.kubectl("delete", ",".join(f"{plural}.{GROUP}" for plural in before), "whole", "-n", place, "--timeout=60s")


def is_established(box: Sandbox) -> bool:
    conditions = [each for kind in definitions(box).values() for each in kind["status"].get("conditions", ())]
    return [each["status"] for each in conditions if each["type"] == "Established"] == ["True"] * 9


def test_upgrade_goes_to_the_next_version(installed: Sandbox) -> None:
    settings = yaml.safe_load((installed.layout.clusterctl / "cluster-api" / "clusterctl.yaml").read_text())
    (url,) = [provider["url"] for provider in settings["providers"] if provider["name"] == PROVIDER]
    release = Path(url.removeprefix("file://")).parent
    shutil.copytree(release, release.parent / "v0.1.99", dirs_exist_ok=True)
    try:
        planned = installed.clusterctl("upgrade", "plan")
        (line,) = [line for line in planned.splitlines() if line.startswith(f"infrastructure-{PROVIDER}")]
        assert line.split()[-1] == "v0.1.99"
        installed.clusterctl("upgrade", "apply", "--infrastructure", f"{PROVIDER}:v0.1.99")
        assert providers(installed) == {PROVIDER: "v0.1.99"}
        assert installed.get("deployment.apps", "hostler", "-n", NAMESPACE)["spec"]["replicas"] == 2
    finally:
        installed.clusterctl("delete", "--infrastructure", PROVIDER)
        shutil.rmtree(release.parent / "v0.1.99")

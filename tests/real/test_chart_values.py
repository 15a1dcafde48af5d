"""The chart with names and values that people do give: odd ones are taken as they are meant, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hostler.explain.callers import READER
from hostler.sandbox import Sandbox
from tests.real.helming import CHART, Helm, Object, only, rendered

LOGIN = ("--set-string", "vcenter.existingSecret=123")
RELEASES = ("123", "true", "my.release", "1abc", f"hostler-{'a' * 41}.aaa", f"hostler-{'a' * 40}--aaa", "a" * 53)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_of_any_name_has_objects_that_may_be_called_so(helm: Helm, release: str) -> None:
    policy = ("--set", "networkPolicy.enabled=true", "--set", "networkPolicy.apiServer={192.0.2.0/24}")
    on = ("--set", "capabilities.reclaim=true", *policy)
    found = rendered(helm("template", release, str(CHART), "-n", "123", *LOGIN, *on))
    for one in found:
        about = one["metadata"]
        # As a Service may be called.
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?|(fleets|pauses)\.hostler\.dev", about["name"]), (
            "as a Service's"
        )
        assert len(about["name"]) <= (253 if one["kind"] == "ClusterRole" else 63)
        assert texts(about.get("labels", {}))
        assert about.get("namespace", "") in ("", "123", "kube-node-lease"), "a text, however it looks"
    pod = only(found, "Deployment")["spec"]["template"]
    assert texts(pod["metadata"]["labels"])
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == "123"
    account = pod["spec"]["serviceAccountName"]
    assert {account, READER} == {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
    assert {one["subjects"][0]["name"] for one in found if one["kind"].endswith("RoleBinding")} == {account}


def test_an_api_server_takes_such_names(sandbox: Sandbox, namespace: str, helm: Helm) -> None:
    found = rendered(helm("template", "1.2", str(CHART), "-n", namespace, *LOGIN))
    words = ("apply", "--server-side", "--force-conflicts", "--field-manager=chart", "--dry-run=server", "-f", "-")
    said = sandbox.kubectl(*words, "--validate=strict", input=yaml.safe_dump_all(found))
    assert said.count("serverside-applied") == len(found)


# -- where it runs

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NOT_THERE = {"key": "gpu", "operator": "DoesNotExist"}


def terms(helm: Helm, folder: Path, *given: str) -> list[Object]:
    """Of the nodes it may run on, where somebody asks for two kinds of them."""
    needed = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}, {"matchFields": []}]}
    values = folder / "values.yaml"
    asked = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": needed}}
    values.write_text(yaml.safe_dump({"affinity": asked, "settings": {"GPU_NODE_LABEL": "gpu"}}))
    made = rendered(helm("template", "hostler", str(CHART), "-f", str(values), *given))
    affinity = only(made, "Deployment")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    found: list[Object] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return found


def test_nobody_s_own_choice_of_nodes_brings_it_to_one_it_empties(helm: Helm, tmp_path: Path) -> None:
    assert terms(helm, tmp_path, *LOGIN) == [
        {"matchExpressions": [ZONE, NOT_THERE]},
        {"matchExpressions": [NOT_THERE], "matchFields": []},
    ]
    assert terms(helm, tmp_path) == [{"matchExpressions": [ZONE]}, {"matchFields": []}], "it empties none"


SELECTORS = (r"gpu in (a\,b)", r"gpu\,!spot", "gpu!=none")


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_selector_needs_the_owner_s_word_on_where_it_may_run(helm: Helm, tmp_path: Path, selector: str) -> None:
    """The chart cannot turn it round; without an affinity Hostler could land on a node that it drains."""
    given = ("--set", f"settings.GPU_NODE_LABEL={selector}")
    refused = helm.run("template", "hostler", str(CHART), *LOGIN, *given)
    assert refused.returncode != 0
    assert "Say where it may run: affinity.nodeAffinity." in refused.stderr
    helm("template", "hostler", str(CHART), *given)  # it empties none without a vCenter
    assert terms(helm, tmp_path, *LOGIN, *given) == [{"matchExpressions": [ZONE]}, {"matchFields": []}], "theirs alone"


# -- values of the predecessor's chart


def test_names_contexts_and_the_place_of_the_ca_can_be_given(helm: Helm) -> None:
    given = (
        "nameOverride=keeper", "podSecurityContext.fsGroup=7", "securityContext.readOnlyRootFilesystem=false",
        "vcenter.caBundle.configMapName=ca", "vcenter.caBundle.mountPath=/ca/",
    )  # fmt: skip
    found = rendered(helm("template", "blue", str(CHART), *LOGIN, "--set", ",".join(given)))
    made = only(found, "Deployment")
    assert made["metadata"]["name"] == "blue-keeper"
    assert made["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "keeper"
    pod = made["spec"]["template"]["spec"]
    assert (pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsNonRoot"]) == (7, True)
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": False, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {"name": "VCENTER_CA_BUNDLE", "value": "/ca/ca.pem"} in container["env"]
    assert "/ca/" in [one["mountPath"] for one in container["volumeMounts"]]
    whole = rendered(helm("template", "blue", str(CHART), *LOGIN, "--set", "fullnameOverride=gpu-keeper"))
    assert only(whole, "Deployment")["metadata"]["name"] == "gpu-keeper"
    assert only(whole, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "gpu-keeper"


# -- what a values file may lack


def test_settings_with_nothing_below_are_none(helm: Helm) -> None:
    plain, empty = (helm("template", "hostler", str(CHART), *LOGIN, *more) for more in ((), ("--set", "settings=null")))
    assert plain == empty


WRONG = {
    "affinity=x": "/affinity",
    "capabilities=null": "'capabilities'",
    "hub.ingress=null": "'ingress'",
    "podDisruptionBudget.maxUnavailable=0": "/podDisruptionBudget/maxUnavailable",
    "podDisruptionBudget.maxUnavailable=some": "/podDisruptionBudget/maxUnavailable",
    "settings.GPU_NODE_LABEL=a=b=c": "/settings/GPU_NODE_LABEL",
    "settings.GPU_NODE_LABEL=a in b": "/settings/GPU_NODE_LABEL",
    "fullnameOverride=1abc": "/fullnameOverride",
    "vcenter.caBundle.mountPath=relative": "/vcenter/caBundle/mountPath",
    "settings.HOSTLER_LEASE_NAME=A_b": "/settings/HOSTLER_LEASE_NAME",
    "settings.HOSTLER_IGNORE_INCUMBENT=metall": "/settings/HOSTLER_IGNORE_INCUMBENT",
}


@pytest.mark.parametrize("given", WRONG)
def test_what_no_operator_would_start_with_is_refused_by_name(helm: Helm, given: str) -> None:
    done = helm.run("template", "hostler", str(CHART), "--set", given)
    assert done.returncode != 0
    assert WRONG[given] in done.stderr
    assert "executing" not in done.stderr, "by the schema, and not by a template that falls over it"


@pytest.mark.parametrize(
    "given",
    [
        "settings.GPU_NODE_LABEL=",
        "settings.GPU_NODE_LABEL=a.b/c=",
        r"settings.HOSTLER_IGNORE_INCUMBENT=metal\, ingress",
        "podDisruptionBudget.maxUnavailable=50%",
        "resources=null",
    ],
)
def test_what_one_would_start_with_is_not(helm: Helm, given: str) -> None:
    helm("template", "hostler", str(CHART), "--set", given)

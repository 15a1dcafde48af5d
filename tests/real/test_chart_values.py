"""The chart with names and values that people do give: odd ones are taken as they are meant, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

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
    on = ("--set", "capabilities.reclaim=true", "--set", "networkPolicy.enabled=true")
    found = rendered(helm("template", release, str(CHART), "-n", "123", *LOGIN, *on))
    for one in found:
        about = one["metadata"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?|fleets\.hostler\.dev", about["name"]), "as a Service's"
        assert len(about["name"]) <= 63
        assert texts(about.get("labels", {}))
        assert about.get("namespace", "") in ("", "123", "kube-node-lease"), "a text, however it looks"
    pod = only(found, "Deployment")["spec"]["template"]
    assert texts(pod["metadata"]["labels"])
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == "123"
    account = only(found, "ServiceAccount")["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert {one["subjects"][0]["name"] for one in found if one["kind"].endswith("Binding")} == {account}


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
    "settings.GPU_NODE_LABEL=a!=b": "/settings/GPU_NODE_LABEL",
    r"settings.GPU_NODE_LABEL=a\,b": "/settings/GPU_NODE_LABEL",
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

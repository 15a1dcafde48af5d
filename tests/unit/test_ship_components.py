"""What `clusterctl` installs is one operator, with the rights of metal and settings that can be filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler import __version__
from hostler.apis.metal3 import GROUP
from hostler.capabilities import ONLY, read_settings
from hostler.cli.entry_point import plain_flags
from hostler.install.grants import rights_for
from hostler.install.roles import Account, roles
from hostler.metal.kinds.definitions import infrastructure_definitions
from hostler.metal.kinds.validation import judge
from hostler.metal.kinds.webhook_objects import DEFAULTED, KINDS, PORT, SERVICE
from hostler.metal.settings import METAL_NAMESPACES, METAL_WEBHOOKS, METAL_WEBHOOKS_ADDRESS, METAL_WORKERS
from hostler.settings.model import Settings
from hostler.ship import components

Json = dict[str, Any]
FILES = dict(components.provider_files("registry.example.com/hostler"))
DOCS = (Path(__file__).resolve().parents[2] / "docs/metal-clusterctl.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)(:=(.*?))?\}")
# What clusterctl knows to be of the whole cluster; it puts everything else into the provider's namespace.
OF_CLUSTER = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
              "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}  # fmt: skip
OF_NAMESPACE = {"Role", "RoleBinding", "ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "Deployment"}


def filled(text: str, told: Mapping[str, str]) -> list[Json]:
    """As clusterctl fills it in."""
    return list(yaml.safe_load_all(VARIABLE.sub(lambda found: told.get(found[1]) or found[3] or "", text)))


def installed(**told: str) -> list[Json]:
    return filled(FILES["infrastructure-components.yaml"], told)


def one(objects: list[Json], kind: str) -> Json:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def settings_of(objects: list[Json]) -> Settings:
    """What the operator in the container reads from its arguments and its environment."""
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    flags = plain_flags(container["args"])
    assert flags is not None
    return read_settings(flags, {**one(objects, "ConfigMap")["data"], **given})


def test_it_is_one_deployment_in_one_namespace() -> None:
    objects = installed()
    assert one(objects, "Namespace")["metadata"]["name"] == components.NAMESPACE
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "manager"
    assert container["image"] == f"registry.example.com/hostler:{__version__}"
    assert {each["kind"] for each in objects} <= OF_CLUSTER | OF_NAMESPACE
    for each in objects:
        assert each["metadata"]["labels"]["cluster.x-k8s.io/provider"] == "infrastructure-hostler-metal3"
        namespaced = each["kind"] in OF_NAMESPACE
        assert each["metadata"].get("namespace") == (components.NAMESPACE if namespaced else None)


def test_its_rights_are_those_of_metal() -> None:
    wanted = roles(rights_for(("metal",)), Account(components.NAMESPACE), openshift=False)
    of_cluster = f"{components.NAMESPACE}-hostler"
    names = {"Role": "hostler", "ClusterRole": of_cluster}
    objects = installed()
    found = [each for each in objects if "rules" in each and each["metadata"]["name"] == names[each["kind"]]]
    assert [each["rules"] for each in found] == [each["rules"] for each in wanted if "rules" in each]
    assert one(objects, "ClusterRoleBinding")["roleRef"]["name"] == of_cluster
    for each in objects:  # else `clusterctl delete` leaves it behind
        if each["kind"].startswith("ClusterRole"):
            assert each["metadata"]["name"].startswith(f"{components.NAMESPACE}-")


def test_requests_for_its_kinds_go_to_its_own_service() -> None:
    objects = installed()
    assert settings_of(objects)[METAL_WEBHOOKS] is True
    assert settings_of(objects)[METAL_WEBHOOKS_ADDRESS].port == METAL_WEBHOOKS_ADDRESS.default.port == PORT
    (service,) = [each for each in objects if each["metadata"]["name"] == SERVICE]
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= {port["name"] for port in container["ports"]}
    clients = [each["clientConfig"] for each in walk(objects) if "clientConfig" in each]
    assert len(clients) == len(DEFAULTED) + 2 * len(KINDS)
    for client in clients:
        assert (client["service"]["namespace"], client["service"]["name"]) == (components.NAMESPACE, SERVICE)


def test_the_nine_kinds_come_with_it() -> None:
    found = {each["metadata"]["name"] for each in installed() if each["kind"] == "CustomResourceDefinition"}
    assert {each["metadata"]["name"] for each in infrastructure_definitions()} <= found
    assert {"fleets.hostler.dev", "pauses.hostler.dev"} <= found


def test_settings_are_variables_with_the_usual_defaults() -> None:
    default = settings_of(installed())
    assert default[ONLY] == ("metal",)
    for setting in components.VARIABLES:
        assert default[setting] == setting.default, setting.name
    told = settings_of(installed(HOSTLER_METAL_WORKERS="7", HOSTLER_METAL_NAMESPACES="a,b"))
    assert told[METAL_WORKERS] == 7
    assert told[METAL_NAMESPACES] == ("a", "b")


def test_every_variable_is_in_the_documentation() -> None:
    set_by_clusterctl = {"CLUSTER_NAME", "NAMESPACE"}
    used = {found[1] for text in FILES.values() for found in VARIABLE.finditer(text)}
    assert {name for name in used - set_by_clusterctl if f"`{name}`" not in DOCS} == set()


def test_the_contract_of_this_version_is_said() -> None:
    series = yaml.safe_load(FILES["metadata.yaml"])["releaseSeries"]
    major, minor = (int(part) for part in __version__.split(".")[:2])
    assert {"major": major, "minor": minor, "contract": "v1beta2"} in series


@pytest.mark.parametrize("flavour", ["cluster-template", "cluster-template-external-etcd", "cluster-template-topology"])
def test_a_template_needs_nothing_outside_of_itself(flavour: str) -> None:
    told = {"CLUSTER_NAME": "c1", "NAMESPACE": "metal", "CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2"}
    objects = filled(FILES[f"{flavour}.yaml"], told)
    assert {each["metadata"]["namespace"] for each in objects} == {"metal"}
    every = [*objects, *(filled(FILES["clusterclass-hostler-metal3.yaml"], {}) if "topology" in flavour else ())]
    there = {(each["kind"], each["metadata"]["name"]) for each in every}
    named = {
        (each["kind"], each["name"])
        for each in walk(every)
        if {"kind", "name"} <= each.keys() and ("apiGroup" in each or "apiVersion" in each)
    }
    assert named
    assert named <= there


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("cluster")])
def test_our_own_webhooks_take_what_the_templates_make(name: str) -> None:
    told = {"CLUSTER_NAME": "c1", "NAMESPACE": "metal", "IMAGE_URL": "http://images.invalid/a", "IMAGE_CHECKSUM": "1"}
    for each in filled(FILES[name], told | {"CLUSTER_APIENDPOINT_HOST": "192.0.2.10"}):
        if each["apiVersion"] == f"{GROUP}/v1beta2":
            assert judge(each, None, "v1beta2").wrong == (), each["kind"]


def walk(value: Any) -> list[Json]:
    match value:
        case dict():
            return [value, *(found for part in value.values() for found in walk(part))]
        case list():
            return [found for part in value for found in walk(part)]
    return []


def test_the_class_has_no_variables_of_clusterctl() -> None:
    assert not VARIABLE.search(FILES["clusterclass-hostler-metal3.yaml"])

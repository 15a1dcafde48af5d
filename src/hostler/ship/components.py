"""The files of a release that `clusterctl` reads: Hostler as Cluster API's infrastructure provider for bare metal.

    python -m hostler.ship.components dist registry.example.com/hostler

The objects are those of `hostler manifests --only metal`, with the nine infrastructure kinds, and with `${VARIABLES}`
for clusterctl to fill in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hostler import __version__
from hostler.install.config_map import IN_CONFIG_MAP
from hostler.install.manifests import Wanted, list_manifests
from hostler.install.roles import Account
from hostler.metal.kinds.definitions import infrastructure_definitions
from hostler.metal.kinds.webhook_objects import conversion_of
from hostler.metal.settings import METAL_WEBHOOKS, PROVIDER_FLAGS
from hostler.metal.settings import SETTINGS as METAL_SETTINGS
from hostler.settings.foundation import LOG_LEVEL
from hostler.settings.model import AnySetting
from hostler.ship.cluster_templates import CLASS, Bare, cluster_class, cluster_template, topology_template

Json = dict[str, Any]
PROVIDER = "hostler-metal3"
NAMESPACE = f"{PROVIDER}-system"
LABEL = f"infrastructure-{PROVIDER}"
LABELS = {"cluster.x-k8s.io/provider": LABEL}
# Where none was named: clusterctl wants a registry, and its own configuration (`images:`) then says which.
IMAGE = "registry.example.com/hostler"
# Which contract of Cluster API each series of releases follows. A new minor version is a new line.
SERIES = {(0, 1): "v1beta2"}
# What clusterctl fills in, from its environment or its configuration. Each is a setting of this name, and those of the
# scope are given by the flags that every provider has. A dry run is none of them: it serves no webhooks, and with these
# configurations in place the API server would refuse every Metal3 object.
VARIABLES: tuple[AnySetting, ...] = (
    LOG_LEVEL, *(setting for setting in METAL_SETTINGS if setting in IN_CONFIG_MAP and setting is not METAL_WEBHOOKS),
)  # fmt: skip
CONTAINER = "manager"  # the name by which clusterctl finds the provider's own container
_BARE = re.compile(r"[\"']?<bare (.*?)>[\"']?")


def provider_files(image: str = IMAGE) -> Iterator[tuple[str, str]]:
    """The name and text of every file of the provider's repository. `image`: without its tag."""
    head = (
        "# Hostler as Cluster API's infrastructure provider; for `clusterctl init --infrastructure hostler-metal3`.\n"
    )
    yield "infrastructure-components.yaml", head + dump(*components(image))
    yield "metadata.yaml", dump(metadata())
    yield "cluster-template.yaml", dump(*cluster_template())
    yield "cluster-template-external-etcd.yaml", dump(*cluster_template(external_etcd=True))
    yield "cluster-template-topology.yaml", dump(*topology_template())
    yield f"clusterclass-{CLASS}.yaml", dump(*cluster_class())


def metadata() -> Json:
    series = [{"major": major, "minor": minor, "contract": contract} for (major, minor), contract in SERIES.items()]
    return {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": series}


def components(image: str = IMAGE) -> Iterator[Json]:
    """Everything the provider is made of, as clusterctl wants it: one Namespace, one Deployment, all with its label."""
    # clusterctl takes every kind that it does not know for a namespaced one, admission policies too.
    wanted = Wanted(
        Account(NAMESPACE), f"{image}:{__version__}", on=("metal",), settings={METAL_WEBHOOKS.name: "true"},
        policies=False,
    )  # fmt: skip
    for made in (*_kinds(), *list_manifests(wanted)):
        match made:
            case {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}:
                environment = [*container["env"], *_environment()]
                container |= {"name": CONTAINER, "args": _arguments(), "env": environment}
            case {"kind": "ClusterRole"}:
                _begin_with_namespace(made["metadata"])
            case {"kind": "ClusterRoleBinding"}:
                _begin_with_namespace(made["metadata"])
                _begin_with_namespace(made["roleRef"])
        metadata = made["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), **LABELS}
        yield made


def _begin_with_namespace(named: Json) -> None:
    """`clusterctl delete` leaves a role of the cluster behind whose name begins otherwise."""
    named["name"] = f"{NAMESPACE}-{named['name']}"


def _kinds() -> Iterator[Json]:
    for definition in infrastructure_definitions():
        definition["spec"]["conversion"] = conversion_of(NAMESPACE)
        yield definition


def _arguments() -> list[str]:
    return ["provider", *(f"{flag}={_variable(setting)}" for flag, setting in PROVIDER_FLAGS.items())]


def _environment() -> Iterator[Json]:
    for setting in VARIABLES:
        if setting not in PROVIDER_FLAGS.values():
            yield {"name": setting.name, "value": _variable(setting)}


def _variable(setting: AnySetting) -> str:
    # clusterctl takes an empty default for none, and asks for the variable. A blank is nothing to the operator either.
    return f"${{{setting.name}:={setting.show(setting.default) or ' '}}}"


class _Dumper(yaml.SafeDumper):
    """Quotes what has variables: without quotes `true` and `20` would be no strings once they are filled in."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "${" in text else None)


def _bare(dumper: _Dumper, text: Bare) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", f"<bare {text}>")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Bare, _bare)


def dump(*objects: Mapping[str, Any]) -> str:
    return _BARE.sub(r"\1", yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=1000))


def write_repository(folder: Path, image: str = IMAGE) -> Path:
    """A local repository of clusterctl with this version in it: the folder of that version."""
    release = folder / LABEL / f"v{__version__}"
    release.mkdir(parents=True, exist_ok=True)
    for name, text in provider_files(image):
        (release / name).write_text(text, encoding="utf-8")
    return release


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m hostler.ship.components DIRECTORY [IMAGE]")
    release = write_repository(Path(sys.argv[1]).resolve(), *sys.argv[2:])
    print(f"components: {release} is a release of the provider {PROVIDER} for clusterctl")


if __name__ == "__main__":
    main()

"""Cluster API beside the control plane, for `--with capi`: its three managers, their objects, and `clusterctl`.

What a manager needs in the cluster (CRDs with their conversion, webhooks, rights) is read from Cluster API's own Go
module and kept in the cache, as `clusterctl init` would install it. Two things differ: the managers run as processes of
the sandbox and not as Deployments, and webhooks are called at a loopback port and not at a Service.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from hostler.sandbox.build import Progress
from hostler.sandbox.certs import write_secret
from hostler.sandbox.crds import MODULES, download_module, install_definitions, own_definitions
from hostler.sandbox.gotool import cache_dir
from hostler.sandbox.load import create
from hostler.sandbox.model import PROVIDERS, Provider

if TYPE_CHECKING:
    from hostler.sandbox.life import Sandbox

Object = dict[str, Any]
MODULE = MODULES["capi"]
CLUSTERCTL = "clusterctl.cluster.x-k8s.io"  # the group of the inventory, and the label of all that clusterctl installs
INVENTORY = f"cmd/clusterctl/config/crd/bases/{CLUSTERCTL}_providers.yaml"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def install_providers(box: Sandbox, progress: Progress) -> None:
    """Everything the managers need, before they start: they end themselves where their CRDs are missing."""
    found = components(progress)
    write_repositories(box.layout.clusterctl, found)
    create(box, [_namespace(one) for one in PROVIDERS])
    parts = [*(one.part for one in PROVIDERS), "clusterctl"]
    objects = [_on_loopback(one, box, part) for part in parts for one in found[part]]
    definitions = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    install_definitions(box, [*definitions, *own_definitions("cert-manager")], progress)
    create(box, [one for one in objects if one["kind"] != "CustomResourceDefinition"])
    create(box, [_entry(one) for one in PROVIDERS])


def components(progress: Progress) -> dict[str, list[Object]]:
    """The objects of each provider by its part, of clusterctl, and the releases; read from the Go module once."""
    kept = cache_dir() / f"components-capi-{MODULE.version}.json"
    try:
        return dict(msgspec.json.decode(kept.read_bytes()))
    except FileNotFoundError:
        pass  # the first time on this machine
    progress.say(f"Reading the components of {MODULE.path} {MODULE.version}. This happens once.")
    root = download_module(MODULE, progress)
    found = {one.part: list(_read_provider(root, one)) for one in PROVIDERS}
    inventory = _load(root / INVENTORY)
    for one in inventory:
        one["metadata"]["labels"] = {CLUSTERCTL: "", f"{CLUSTERCTL}/core": "inventory"}
    found["clusterctl"] = inventory
    found["metadata"] = _load(root / "metadata.yaml")
    write_secret(kept, msgspec.json.encode(found))
    return found


def write_repositories(settings: Path, found: dict[str, list[Object]]) -> None:
    """Where clusterctl finds the providers that are there: it asks for their releases, and else would ask GitHub."""
    entries = []
    for provider in PROVIDERS:
        release = settings / "repository" / provider.label / MODULE.version
        release.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = release / f"{provider.type.removesuffix('Provider').lower()}-components.yaml"
        write_secret(file, yaml.safe_dump_all([_namespace(provider), *found[provider.part]]).encode())
        write_secret(release / "metadata.yaml", yaml.safe_dump_all(found["metadata"]).encode())
        entries.append({"name": provider.name, "type": provider.type, "url": file.as_uri()})
    (settings / "cluster-api").mkdir(mode=0o700, exist_ok=True)
    write_secret(settings / "cluster-api" / "clusterctl.yaml", yaml.safe_dump({"providers": entries}).encode())


def _load(file: Path) -> list[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(file.read_text(), Loader=loader) if one]  # nosec B506 # a safe loader


def _read_provider(root: Path, provider: Provider) -> Iterator[Object]:
    """What kustomize makes of the folder `config`, as far as it matters here."""
    config = root / provider.folder / "config"
    labels = {CLUSTERCTL: "", "cluster.x-k8s.io/provider": provider.label}
    (crds,) = _load(config / "crd" / "kustomization.yaml")
    contract = {name: value for one in crds.get("labels", ()) for name, value in one["pairs"].items()}
    conversions = {
        one["metadata"]["name"]: one["spec"]["conversion"]
        for file in (config / "crd" / "patches").glob("webhook_in_*.yaml")
        for one in _load(file)
    }
    for name in crds["resources"]:
        (one,) = _load(config / "crd" / name)
        one["metadata"]["labels"] = {**labels, **contract}
        one["spec"]["conversion"] = conversions[one["metadata"]["name"]]
        yield one
    (rights,) = _load(config / "rbac" / "kustomization.yaml")
    files = [*(config / "rbac" / name for name in rights["resources"]), config / "webhook" / "manifests.yaml"]
    aggregation = config / "default" / "manager_role_aggregation_patch.yaml"
    patches = {
        (one["kind"], one["metadata"]["name"]): one for one in (_load(aggregation) if aggregation.exists() else ())
    }
    for file in files:
        for one in _load(file):
            patch = patches.get((one["kind"], one["metadata"]["name"]), {})
            one["metadata"]["labels"] = {**labels, **patch.get("metadata", {}).get("labels", {})}
            yield _named(one | {key: patch[key] for key in ("roleRef",) if key in patch}, provider)


def _named(one: Object, provider: Provider) -> Object:
    """With the provider's prefix and in its namespace, references too."""
    one["metadata"]["name"] = provider.prefix + one["metadata"]["name"]
    if one["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
        one["metadata"]["namespace"] = provider.namespace
    if "roleRef" in one:
        one["roleRef"]["name"] = provider.prefix + one["roleRef"]["name"]
    for subject in one.get("subjects", ()):
        subject |= {"name": provider.prefix + subject["name"], "namespace": provider.namespace}
    return one


def _on_loopback(one: Object, box: Sandbox, part: str) -> Object:
    """The webhooks of this object at the manager's own port, trusted by the sandbox's CA."""
    match one:
        case {"kind": kind, "webhooks": webhooks} if kind in WEBHOOKS:
            clients = [webhook["clientConfig"] for webhook in webhooks]
        case {"spec": {"conversion": {"webhook": {"clientConfig": client}}}}:
            clients = [client]
        case _:
            return one
    authority = base64.b64encode((box.layout.pki / "ca.crt").read_bytes()).decode()
    for client in clients:
        path = client.pop("service")["path"]
        client |= {"url": f"https://127.0.0.1:{box.state.ports[part]}{path}", "caBundle": authority}
    return one


def _namespace(provider: Provider) -> Object:
    labels = {CLUSTERCTL: "", "cluster.x-k8s.io/provider": provider.label}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": provider.namespace, "labels": labels}}


def _entry(provider: Provider) -> Object:
    """What `clusterctl init` notes of a provider that it installed: `init` and `move` look there."""
    labels = {CLUSTERCTL: "", "cluster.x-k8s.io/provider": provider.label, f"{CLUSTERCTL}/core": "inventory"}
    return {
        "apiVersion": f"{CLUSTERCTL}/v1alpha3",
        "kind": "Provider",
        "metadata": {"name": provider.label, "namespace": provider.namespace, "labels": labels},
        "providerName": provider.name,
        "type": provider.type,
        "version": MODULE.version,
        "watchedNamespace": "",
    }

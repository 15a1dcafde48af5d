"""The CRDs of the APIs that Hostler serves, for `--crds`.

Two sources. `capi` and `openshift` are published Go modules: downloaded once, kept beside the programs in the cache,
and from then on neither Go nor a network is needed. `metal3` and `agents` are on no registry: the sandbox has its own
definitions of them, in crds/*.yaml. They describe the fields that Hostler uses and accept every other field. What the
published definitions demand of these fields (required, enums, patterns, bounds, defaults) is part of them, so that the
API server refuses here what it refuses elsewhere; tests/unit/test_sandbox_crds.py compares the two. Their notation is
explained in hostler/compact_schema.py; a word is a shape from `shapes:` of the same file.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from hostler.compact_schema import expand_shape
from hostler.errors import Complaint, Exit
from hostler.sandbox.build import Progress
from hostler.sandbox.certs import write_secret
from hostler.sandbox.gotool import cache_dir, environment, find_go
from hostler.sandbox.load import create

if TYPE_CHECKING:
    from hostler.sandbox.life import Sandbox

Schema = dict[str, Any]
OWN = ("agents", "metal3")


class Module(msgspec.Struct, frozen=True):
    """A published Go module with CRDs in it."""

    path: str
    version: str
    folders: tuple[str, ...]
    plurals: tuple[str, ...] = ()  # only these; none: all


MODULES = {
    "capi": Module("sigs.k8s.io/cluster-api", "v1.14.2", ("core/config/crd/bases", "config/crd/bases")),
    "openshift": Module(
        "github.com/openshift/api",
        "v0.0.0-20260325070019-86893981287e",
        tuple(
            f"{folder}/zz_generated.crd-manifests"
            for folder in ("config/v1", "operator/v1", "machine/v1beta1", "machineconfiguration/v1")
        ),
        # What says how a cluster is laid out. All of them would double the memory of the API server.
        (
            *("clusteroperators", "clusterversions", "dnses", "featuregates", "infrastructures", "ingresses"),
            *("networks", "nodes", "proxies", "schedulers", "ingresscontrollers", "clustercsidrivers", "storages"),
            *("machines", "machinesets", "machineconfigpools", "machineconfigs"),
        ),
    ),
}
# Some of the groups of another name: what is there before a provider for them is installed.
PARTS_OF = {"bmo": ("metal3", ("metal3.io", "ipam.metal3.io"))}
NAMES = tuple(sorted((*OWN, *PARTS_OF, *MODULES)))


def check_names(wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in NAMES:
            raise Complaint(f"There are no CRDs {name!r}.", hint=f"--crds knows {', '.join(NAMES)}.", code=Exit.USAGE)


def install_crds(box: Sandbox, wanted: Sequence[str], progress: Progress) -> None:
    """Install the CRDs of the named APIs and wait until they are served."""
    definitions = {one["metadata"]["name"]: one for name in wanted for one in definitions_of(name, progress)}
    if definitions:
        install_definitions(box, list(definitions.values()), progress)


def install_definitions(box: Sandbox, definitions: Sequence[Schema], progress: Progress) -> None:
    """Install these CRDs and wait until they are served."""
    begin = time.monotonic()
    create(box, definitions)
    for one in definitions:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
        while not _established(box.read(path)):
            if time.monotonic() - begin > 120:
                raise Complaint(
                    f"The API server does not serve {one['metadata']['name']} two minutes after it was made."
                )
            time.sleep(0.1)
    progress.say(f"Installed {len(definitions)} CRDs in {time.monotonic() - begin:.1f} s.")


def definitions_of(name: str, progress: Progress) -> list[Schema]:
    """The CRDs behind one name."""
    if name in PARTS_OF:
        whole, groups = PARTS_OF[name]
        return [one for one in own_definitions(whole) if one["spec"]["group"] in groups]
    return own_definitions(name) if name in OWN else _from_module(name, progress)


def _established(definition: Schema) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []  # some are published with null
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


# -- published ones ----------------------------------------------------------------------------------------------------


def _from_module(name: str, progress: Progress) -> list[Schema]:
    module = MODULES[name]
    kept = cache_dir() / f"crds-{name}-{module.version}.json"
    try:
        return list(msgspec.json.decode(kept.read_bytes()))
    except FileNotFoundError:
        pass  # the first time on this machine
    progress.say(f"Downloading the CRDs of {module.path} {module.version}. This happens once.")
    definitions = list(_select(download_module(module, progress), module))
    if not definitions:
        raise Complaint(f"There are no CRDs in {module.path} {module.version} where they were expected.")
    write_secret(kept, msgspec.json.encode(definitions))
    return definitions


def download_module(module: Module, progress: Progress) -> Path:
    """Where a Go module lies in Go's own cache."""
    go, _ = find_go(progress.say)
    done = subprocess.run(
        [go, "mod", "download", "-json", f"{module.path}@{module.version}"],
        cwd=cache_dir(),
        env={**environment(), "GOFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = msgspec.json.decode(done.stdout) if done.stdout.strip().startswith("{") else {}
    if done.returncode != 0 or "Dir" not in found:
        why = found.get("Error") or done.stderr.strip() or f"`go mod download` ended with code {done.returncode}"
        raise Complaint(
            f"The CRDs of {module.path} could not be downloaded: {why}",
            hint="They come from GOPROXY, once; `go env GOPROXY` shows which.",
            code=Exit.UNREACHABLE,
        )
    return Path(found["Dir"])


def _select(root: Path, module: Module) -> Iterator[Schema]:
    """One definition per kind; where there is one per feature set, the default one of a cluster that runs itself."""
    files = sorted(file for folder in module.folders for file in (root / folder).glob("*.yaml"))
    plain = [file for file in files if not re.search(r"-(\w*NoUpgrade|OKD|Hypershift)\b", file.name)]
    seen: set[str] = set()
    for file in plain:
        plural = re.split(r"[.-]", file.name.rpartition("_")[2])[0]
        if module.plurals and plural not in module.plurals:
            continue
        definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506 # a safe loader
        if definition["metadata"]["name"] not in seen:
            seen.add(definition["metadata"]["name"])
            yield definition


# -- our own -----------------------------------------------------------------------------------------------------------


def own_definitions(name: str) -> list[Schema]:
    """The definitions in crds/NAME.yaml."""
    text = (resources.files("hostler.sandbox") / "crds" / f"{name}.yaml").read_text()
    content = yaml.safe_load(text)
    return [_definition(kind, content["shapes"]) for kind in content["kinds"]]


# By these labels Cluster API finds the version of a provider's kind that follows its contract.
CONTRACTS = {
    "infrastructure.cluster.x-k8s.io": {f"cluster.x-k8s.io/{contract}": contract for contract in ("v1beta1", "v1beta2")}
}


def _definition(kind: Schema, shapes: Schema) -> Schema:
    plural, group = kind["plural"], kind["group"]
    singular = kind["kind"].lower()
    names = {"kind": kind["kind"], "listKind": f"{kind['kind']}List", "plural": plural, "singular": singular}
    names |= {"shortNames": kind.get("short", []), "categories": kind.get("categories", [])}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "labels": {**CONTRACTS.get(group, {}), **kind.get("labels", {})},
            "annotations": {"hostler.dev/definition": "compact; for the sandbox only"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [_version(kind, shapes, name, newest=n == 0) for n, name in enumerate(kind["versions"])],
        },
    }


def _version(kind: Schema, shapes: Schema, name: str, *, newest: bool) -> Schema:
    # Fields moved between versions, so only the newest is described; the older ones let everything through.
    parts = {part: kind[part] for part in ("spec", "spec!", "status") if part in kind}
    schema = expand_shape(parts if newest else {}, shapes, keep_unknown=True)
    columns = [{"name": title, "type": "string", "jsonPath": path} for title, path in kind.get("columns", {}).items()]
    return {
        "name": name,
        "served": True,
        "storage": newest,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
        **({"subresources": {"status": {}}} if "status" in kind else {}),
    }

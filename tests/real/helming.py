"""The real Helm on our chart, and what its output is: manifests, roles, the environment of the operator's pod."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hostler.install.admission import POLICY
from hostler.sandbox import Sandbox
from hostler.sandbox.helmtool import find_helm

CHART = Path(__file__).resolve().parents[2] / "chart"
SETS = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
Object = dict[str, Any]


# What a cluster of 1.30 or newer serves; without one, this Helm knows only the kinds of its own.
SERVED = ("--api-versions", f"{POLICY.api_version}/{POLICY.kind}")


class Helm:
    """Its files go to `folder`; without a sandbox it reaches no cluster."""

    def __init__(self, folder: Path, sandbox: Sandbox | None = None) -> None:
        self._program = str(find_helm())
        self._env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "HELM_CACHE_HOME": str(folder / "cache"),
            "HELM_CONFIG_HOME": str(folder / "config"), "HELM_DATA_HOME": str(folder / "data"),
            "KUBECONFIG": str(sandbox.kubeconfig) if sandbox else str(folder / "none"), "NO_PROXY": "127.0.0.1",
        }  # fmt: skip

    def run(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self._program, *words]
        return subprocess.run(command, env=self._env, input=input, capture_output=True, text=True, timeout=180)

    def __call__(self, *words: str, input: str | None = None) -> str:
        done = self.run(*words, input=input)
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout


def rendered(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def only(found: list[Object], kind: str) -> Object:
    (one,) = [one for one in found if one["kind"] == kind]
    return one


def bound(found: list[Object]) -> list[Object]:
    """The roles with a binding; those for people have none until a user binds them."""
    names = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in found if one["kind"].endswith("RoleBinding")}
    resources = [one for one in found if (one["kind"], one["metadata"]["name"]) in names]
    return [one for one in resources if "apiGroups" in one["rules"][0]]


def for_people(found: list[Object]) -> dict[str, list[Object]]:
    """The rules of the roles that nobody has yet, and of the one for metrics."""
    theirs = bound(found)
    return {
        one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "ClusterRole" and one not in theirs
    }


def granted(found: list[Object]) -> Iterator[tuple[str, str, str, str, str]]:
    """(namespace, group, resource, verb, name) of what the operator may do; no namespace is the whole cluster."""
    for one in bound(found):
        for rule in one["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            yield one["metadata"].get("namespace", ""), group, resource, verb, name

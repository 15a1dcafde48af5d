"""Who operators are: service accounts with the rights that the chart gives for what is switched on, and no other.

An operator never runs as an administrator; `test_zz_rights.py` reads in the audit log that none did. The two who must
be somebody else are `NOBODY` and `PERSON`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hostler.capabilities import CAPABILITIES
from hostler.install.grants import rights_for
from hostler.install.reviews import missing_rights
from hostler.install.rights import OPENSHIFT, Right
from hostler.install.roles import Account, roles
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.safety.switches import choose
from hostler.sandbox import Sandbox, http
from hostler.sandbox.load import create

TOKEN_SECONDS = 6 * 3600  # longer than any run
# How the accounts of a run are called, and only they.
CHARTED = "hostler"
# Without any right: what is refused to it is refused on purpose.
NOBODY = "powerless"
# A person with every right who starts an operator by hand for a namespace that does not exist, where no account can be.
PERSON = "person-with-every-right"

_numbers = itertools.count(1)
# Stories run side by side in threads; two that let msgspec read one type for the first time end the process.
_one_at_a_time = threading.Lock()


def new_account(
    namespace: str,
    name: str = "operator",
    lease: str = "hostler",
    kind: str = CHARTED,
    limits: Mapping[str, tuple[str, ...]] | None = None,
) -> Account:
    """One of its own for each operator, so that the audit log can tell its writes. `limits`: as settings name them."""
    return Account(namespace, f"{kind}-{namespace}-{name}-{next(_numbers)}", lease, limits or {})


@contextmanager
def charted(sandbox: Sandbox, who: Account, rights: Collection[Right], at: Path | None = None) -> Iterator[str]:
    """The account with these rights and no other: its user name. What is not in its namespace is gone afterwards.

    `at`: an administrator's kubeconfig of the API server that is to know of it, if not the sandbox's own.
    """
    made = roles(rights, who, openshift=True)
    metadata = {"name": who.name, "namespace": who.namespace}
    create(sandbox, [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, *made])
    try:
        # One right of each role is asked for: a new role is known with all its rules or not at all.
        wait_for_rights(at or sandbox.kubeconfig, who, {who.places(right): right for right in rights}.values())
        yield who.user
    finally:
        tls, port = http.trust(sandbox.layout, "admin"), sandbox.state.ports["kube-apiserver"]
        for one in made:
            if one["metadata"].get("namespace") != who.namespace:
                http.call(port, "DELETE", _path(one), tls=tls)


def _path(role: dict[str, Any]) -> str:
    """Of a role or a binding."""
    place = f"namespaces/{role['metadata']['namespace']}/" if "namespace" in role["metadata"] else ""
    return f"/apis/{role['apiVersion']}/{place}{role['kind'].lower()}s/{role['metadata']['name']}"


def rights_here(sandbox: Sandbox, only: Collection[str]) -> tuple[Right, ...]:
    """As the chart grants them: what matters on OpenShift only where there is one."""
    spaces = sandbox.read("/api/v1/namespaces")["items"]
    there = {one["metadata"]["name"] for one in spaces if one["status"]["phase"] == "Active"}
    return tuple(one for one in rights_for(only) if not one.openshift or (one.namespace or OPENSHIFT) in there)


def wait_for_rights(kubeconfig: Path, who: Account, rights: Iterable[Right]) -> None:
    """An API server learns of roles by a watch of its own: what was made is in force a moment later."""
    wanted, end = tuple(rights), time.monotonic() + 120
    while missing := _missing(kubeconfig, who, wanted):
        assert time.monotonic() < end, missing
        time.sleep(0.05)


def _missing(kubeconfig: Path, who: Account, rights: tuple[Right, ...]) -> tuple[str, ...]:
    async def ask() -> tuple[str, ...]:
        async with Client(load(str(kubeconfig))) as client:
            return await missing_rights(client, who, rights)

    with _one_at_a_time:
        return asyncio.run(ask())


def switched_on(flags: Sequence[str], told: Mapping[str, str]) -> list[str]:
    """The capabilities that an operator with these flags and variables runs, by its own rule."""
    given = dict(itertools.pairwise(flags))
    only = given.get("--only") or told.get("HOSTLER_ONLY") or ""
    needed = [name for one in CAPABILITIES for name in one.needs]
    configured = {name for name in needed if told.get(name) or given.get(f"--{name.lower().replace('_', '-')}")}
    return [one.capability.name for one in choose(CAPABILITIES, only.split(",") if only else (), configured) if one.on]


def kubeconfig_of(sandbox: Sandbox, folder: Path, user: str, at: Path | None = None) -> Path:
    """The sandbox's kubeconfig (or `at`, of another API server of it) with a service account's login, nothing else."""
    _, _, namespace, name = user.split(":")
    path = folder / f"{name}.kubeconfig"
    return kubeconfig_with(at or sandbox.kubeconfig, path, token_of(sandbox, namespace, name))


def token_of(sandbox: Sandbox, namespace: str, name: str) -> str:
    body = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    tls, port = http.trust(sandbox.layout, "admin"), sandbox.state.ports["kube-apiserver"]
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(http.ask("The API server", port, "POST", path, body, tls=tls)["status"]["token"])


def kubeconfig_with(kubeconfig: Path, path: Path, token: str) -> Path:
    """This kubeconfig with nothing but this token."""
    read = yaml.safe_load(kubeconfig.read_text())
    for one in read["users"]:
        one["user"] = {"token": token}
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path

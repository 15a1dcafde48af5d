"""`hostler bundle`: everything that others need to understand a problem, in one file, without secrets."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import typer

from hostler import __version__
from hostler.capabilities import BY_NAME
from hostler.cli import flags
from hostler.cli.explain import ASKING
from hostler.cli.printing import print_note
from hostler.errors import Complaint, Exit
from hostler.history.settings import HISTORY_URL
from hostler.maintenance import settings as maintenance
from hostler.settings.foundation import LEASE_NAME, NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.kube.client import Client

app = typer.Typer()
LOG_LINES = 5000
READ_API = ("config", "maintenance", "hosts", "operations", "history")
OBJECTS = "objects/"
# Where nothing was configured or ever stopped, and no operator has led, none of these is there.
MAY_NOT_EXIST = frozenset(f"kubernetes/{name}.json" for name in ("fleet", "pauses", "lease", "stopped-vms"))


@app.command()
@flags.takes(*ASKING, also=(HISTORY_URL, *maintenance.SETTINGS))
def bundle(
    settings: Settings,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = Path("hostler-bundle.tar.gz"),
    partial: Annotated[
        bool, typer.Option("--partial", help="Exit with 0 also where a part could not be read.")
    ] = False,
) -> None:
    """Write a support archive: status, settings, objects of what is on, events and logs, with every secret removed.

    What could not be read is named in it, with the reason. If a part is missing that should be there, the archive is
    written all the same and the exit code is 1. Look through it before you send it.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.redact import redact, redact_text
    from hostler.host.conditions import names

    if file.exists():
        raise Complaint(f"{file} is there already.", hint="Name another with --file.", code=Exit.REFUSED)
    known = _secrets(settings)
    gathered, lacking = ask_cluster(settings, lambda client: gather(client, settings))
    parts = {
        name: (redact_text(found, known) if isinstance(found, str) else _json(redact(found, known))).encode()
        for name, found in gathered.items()
    }
    _write(file, parts)
    size = f"{len(parts)} files, {file.stat().st_size / 1024:.0f} KiB"
    unread = sum(name.endswith(".missing") for name in parts)
    less = f" {unread} could not be read: what ends in .missing says why." if unread else ""
    print_note(f"Wrote {file}: {size}.{less} Secrets are removed; look through it before you send it.")
    if lacking and not partial:
        print_note(f"hostler: It lacks {names(lacking, limit=len(lacking))}. With --partial that counts as done.")
        raise typer.Exit(Exit.FAILED)


def _secrets(settings: Settings) -> set[str]:
    """Those we know: given as settings, or in the files that settings name."""
    from hostler.vsphere.endpoints import endpoints

    known = {str(one.value) for one in settings if one.setting.secret and one.value}
    if password := urlsplit(settings[HISTORY_URL]).password:
        known |= {password, unquote(password)}
    try:
        return known | {one.login().password for one in endpoints(settings)}
    except Complaint:
        return known  # no login works with files like these, and a bundle may be wanted because of them


def _json(data: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data)).decode()


async def gather(client: Client, settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """Each part by its name, and which are missing that should be there.

    One that cannot be had says why in its place. With none at all, what the first said.
    """
    parts: dict[str, Any] = {"about.json": {"version": __version__, "made": time.strftime("%FT%TZ", time.gmtime())}}
    missing: dict[str, Exception] = {}

    async def keep(looks: Iterator[tuple[str, Callable[[], Awaitable[Any]]]]) -> None:
        for name, look in looks:
            try:
                parts[name] = await look()
            except Complaint as complaint:
                missing[name] = complaint
                parts[f"{name}.missing"] = complaint.sentence
            except Exception as error:  # noqa: BLE001  # one part that fails must not cost the others
                missing[name] = error
                parts[f"{name}.missing"] = f"{type(error).__name__}: {error}"

    await keep(_looks(client, settings))
    first = next((error for error in missing.values() if not isinstance(error, Complaint)), None)
    if first is not None and not any(name.endswith(".json") for name in parts if "/" in name):
        raise first
    status = parts.get("operator/status.json")
    on = _switched_on(status)
    # Without an operator it is unknown what is on: then whatever is there of any capability.
    await keep(_object_looks(client, settings, on if status else frozenset(BY_NAME)))
    return parts, [name for name, error in missing.items() if not _may_lack(name, error, on)]


def _may_lack(name: str, error: Exception, on: frozenset[str]) -> bool:
    """Whether there is nothing to read: an object that need not exist, or a capability that is off."""
    from hostler.kube.errors import NotFound

    if name == "operator/maintenance.json":
        return "maintenance" not in on
    return (name in MAY_NOT_EXIST or name.startswith(OBJECTS)) and isinstance(error, NotFound)


def _switched_on(status: Any) -> frozenset[str]:
    capabilities = status["status"].get("capabilities", ()) if status else ()
    return frozenset(one["name"] for one in capabilities if one["enabled"])


def _looks(client: Client, settings: Settings) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    import msgspec

    from hostler.cli.cluster import ask_operator_by
    from hostler.kube.events import CONTROLLER

    namespace, lease = settings[NAMESPACE], settings[LEASE_NAME]

    def read(path: str) -> Callable[[], Awaitable[Any]]:
        async def look() -> Any:
            return msgspec.json.decode(await client.request("GET", path))

        return look

    def ask(path: str) -> Callable[[], Awaitable[Any]]:
        return lambda: ask_operator_by(client, settings, path, dict[str, Any])

    yield "kubernetes/version.json", read("/version")
    yield "kubernetes/nodes.json", read("/api/v1/nodes")
    yield "kubernetes/fleet.json", read("/apis/hostler.dev/v1alpha1/fleets")
    yield "kubernetes/pauses.json", read("/apis/hostler.dev/v1alpha1/pauses")
    yield "kubernetes/lease.json", read(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}")
    yield "kubernetes/deployments.json", read(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    yield "kubernetes/pods.json", read(f"/api/v1/namespaces/{namespace}/pods")
    yield "kubernetes/events-here.json", read(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    selector = quote(f"reportingController={CONTROLLER}", safe="")
    yield "kubernetes/events.json", read(f"/apis/events.k8s.io/v1/events?fieldSelector={selector}")
    yield "kubernetes/stopped-vms.json", read(f"/api/v1/namespaces/{namespace}/configmaps/hostler-stopped-vms")
    yield "logs.txt", lambda: logs_of(client, namespace)
    for name in ("status", *READ_API):
        yield f"operator/{name}.json", ask(f"/v1/{name}")


def _object_looks(
    client: Client, settings: Settings, on: Collection[str]
) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    from hostler.cli.bundle_objects import listings_of, read_objects

    for listing in listings_of(on, settings[NAMESPACE]):
        yield listing.file, partial(read_objects, client, listing)


async def logs_of(client: Client, namespace: str) -> str:
    """The end of the log of every container in the operator's namespace, and of what it was before it restarted."""
    from hostler.kube.kinds import POD

    said = []
    for pod in await client.list(POD, namespace, type=dict[str, Any]):
        name = pod["metadata"]["name"]
        restarted = {one["name"] for one in pod.get("status", {}).get("containerStatuses", ()) if one["restartCount"]}
        for container in (one["name"] for one in pod["spec"]["containers"]):
            path, asked = POD.path(namespace, name, "log"), {"container": container, "tailLines": str(LOG_LINES)}
            if container in restarted:
                before = await _log(client, path, {**asked, "previous": "true"})
                said.append(f"==> {name}, {container}, before it restarted\n{before}")
            said.append(f"==> {name}, {container}\n{await _log(client, path, asked)}")
    return "\n".join(said) or f"There is no pod in namespace {namespace}: the operator runs elsewhere."


async def _log(client: Client, path: str, asked: dict[str, str]) -> str:
    """One that has none yet, as where no node is found for a pod, must not cost the others."""
    from hostler.kube.errors import ApiError

    try:
        return (await client.request("GET", path, params=asked)).decode(errors="replace")
    except ApiError as error:
        return f"(no log: {error})"


def _write(file: Path, parts: dict[str, bytes]) -> None:
    try:
        with open(file, "xb", opener=_private) as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, data in parts.items():
                entry = tarfile.TarInfo(f"hostler-bundle/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise Complaint(f"{file} cannot be written: {error.strerror}.", code=Exit.SETTING) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

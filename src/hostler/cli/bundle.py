"""`hostler bundle`: everything somebody else needs to understand a problem, in one file, without secrets."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import typer

from hostler import __version__
from hostler.cli import flags, say
from hostler.cli.explain import ASKING
from hostler.errors import Complaint, Exit
from hostler.history.settings import HISTORY_URL
from hostler.maintenance import settings as maintenance
from hostler.settings.foundation import LEASE_NAME, NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.kube.client import Client

app = typer.Typer()
LOG_LINES = 5000
READ_API = ("status", "config", "maintenance")


@app.command()
@flags.takes(*ASKING, HISTORY_URL, *maintenance.SETTINGS)
def bundle(
    settings: Settings,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = Path("hostler-bundle.tar.gz"),
) -> None:
    """Write a support archive: status, settings, nodes, events, lease and logs, with every secret removed.

    What could not be read is named in it, with the reason. Look through it before you send it.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.redact import redact, redact_text

    if file.exists():
        raise Complaint(f"{file} is there already.", hint="Name another with --file.", code=Exit.REFUSED)
    known = _secrets(settings)
    gathered = ask_cluster(settings, lambda client: _gather(client, settings))
    parts = {
        name: (redact_text(found, known) if isinstance(found, str) else _json(redact(found, known))).encode()
        for name, found in gathered.items()
    }
    _write(file, parts)
    size = f"{len(parts)} files, {file.stat().st_size / 1024:.0f} KiB"
    unread = sum(name.endswith(".missing") for name in parts)
    less = f" {unread} could not be read: what ends in .missing says why." if unread else ""
    say.note(f"Wrote {file}: {size}.{less} Secrets are removed; look through it before you send it.")


def _secrets(settings: Settings) -> set[str]:
    """Those we know: given as settings, or in the files that settings name."""
    from hostler.vsphere.endpoints import endpoints

    known = {str(one.value) for one in settings if one.setting.secret and one.value}
    if password := urlsplit(settings[HISTORY_URL]).password:
        known |= {password, unquote(password)}
    try:
        return known | {one.login().password for one in endpoints(settings)}
    except Complaint:
        return known  # nobody could log in with files like these, and a bundle may be wanted because of them


def _json(data: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data)).decode()


async def _gather(client: Client, settings: Settings) -> dict[str, Any]:
    """Each part by its name; one that cannot be had says why in its place. With none at all, what the first said."""
    parts: dict[str, Any] = {"about.json": {"version": __version__, "made": time.strftime("%FT%TZ", time.gmtime())}}
    first: Exception | None = None
    for name, look in _looks(client, settings):
        try:
            parts[name] = await look()
        except Complaint as complaint:
            parts[f"{name}.missing"] = complaint.sentence
        except Exception as error:  # noqa: BLE001  # one part that fails must not cost the others
            parts[f"{name}.missing"] = f"{type(error).__name__}: {error}"
            first = first or error
    if first is not None and not any(name.endswith(".json") for name in parts if "/" in name):
        raise first
    return parts


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
    for word in READ_API:
        yield f"operator/{word}.json", ask(f"/v1/{word}")


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

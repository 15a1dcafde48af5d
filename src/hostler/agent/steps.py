"""The two steps the hub can ask for. Each may be repeated at any point; each leaves the host as it was if it fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostler.agent import boot_entry, kernel_arguments, secure_boot
from hostler.agent.executor import Executor
from hostler.agent.fetch import Fetched, Web, measure
from hostler.agent.host import Host
from hostler.agent.loaders.detection import detect_loader
from hostler.agent.loaders.loader import BootLoader
from hostler.agent.refusal import Reason, Refusal

DOWNLOAD = "download-boot-artifacts"
REBOOT = "reboot-for-reclaim"
# Left free on the boot partition: the installed system's own next kernel belongs there too.
SLACK = 8 * 1024 * 1024
RPM_OSTREE, CLEANUP_SECONDS = "/usr/bin/rpm-ostree", 600.0
Say = Callable[[str, int], None]


@dataclass(frozen=True)
class Wanted:
    """One file to fetch: from where, to which path of the host, with which hash if one was announced."""

    url: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Pod:
    """What the pod spec said about this host: the expected boot id and the InfraEnv, for names of files."""

    infra_env: str
    expected_boot_id: str
    artifacts: Mapping[str, str] = field(default_factory=dict)  # addresses for a step that names none
    require_one_shot: bool = False  # refuse where later boots would start discovery too
    clean_boot: bool = False  # where the boot partition lacks room, give up the host's rollback deployment


def download(host: Host, web: Web, executor: Executor, pod: Pod, arguments: Mapping[str, Any], say: Say) -> str:
    """Fetch kernel and initrd, write the entry, choose it, verify. Returns what was done, as JSON."""
    _same_boot(host, executor, pod)
    web.begin()
    arguments = {**pod.artifacts, **arguments}
    loader = detect_loader(host)
    kernel, initrd = _wanted(loader, pod, arguments)
    words = kernel_arguments.compose_words(
        _text(arguments, "rootfs_url"),
        host.command_line(),
        kernel_arguments.parse_arguments(arguments.get("kernel_arguments")),
    )
    lasts = loader.why_lasting()
    if lasts and pod.require_one_shot:
        raise _not_one_shot(loader, lasts)
    cleaned = _ensure_space(host, web, executor, pod, loader, (kernel, initrd), say)
    if rootfs := _text(arguments, "rootfs_url"):
        web.look(rootfs)  # the discovery system fetches it itself; not being there is better known now
    with boot_entry.make_writable(host, executor, loader.discovery):
        got_kernel = _fetch(host, web, kernel, "kernel", say)
        boot_entry.check_kernel(host, loader, kernel.path)
        trust = secure_boot.check_signer(host, kernel.path)
        got_initrd = _fetch(host, web, initrd, "initrd", say)
        selected = boot_entry.write_entry(
            loader,
            executor,
            boot_entry.Artifact(kernel.path, got_kernel),
            boot_entry.Artifact(initrd.path, got_initrd),
            words,
        )
        if selected.lasts and pod.require_one_shot:
            boot_entry.undo_entry(loader, executor)
            raise _not_one_shot(loader, selected.lasts)
    return json.dumps(
        {
            "loader": loader.name,
            "evidence": list(loader.evidence),
            "entry": selected.file,
            "selected_by": selected.how,
            "falls_back": selected.falls_back,
            "lasts": selected.lasts,
            "cleaned": cleaned,
            "secure_boot": trust,
            "kernel": {"bytes": got_kernel.size, "sha256": got_kernel.sha256},
            "initrd": {"bytes": got_initrd.size, "sha256": got_initrd.sha256},
            "unverified": [name for name, file in (("kernel", kernel), ("initrd", initrd)) if not file.sha256],
        },
        sort_keys=True,
    )


def reboot(host: Host, executor: Executor, pod: Pod) -> str:
    """Restart the host; never a second time. A host that is already on another boot came back to its old system."""
    now = _same_boot(host, executor, pod)
    boot_entry.check_chosen(host)
    executor.run("systemctl", "reboot", reason=Reason.REBOOT_FAILED)
    return json.dumps({"boot_id": now})


def _same_boot(host: Host, executor: Executor, pod: Pod) -> str:
    """The boot this reclaim began in. Another one, or not knowing which it was, ends it: it would restart for ever."""
    now = host.boot_id()
    if not pod.expected_boot_id:
        raise Refusal(
            Reason.BAD_ARGUMENTS,
            "EXPECTED_BOOT_ID is not set, so the agent cannot tell whether the host was restarted since this began. "
            "Try again.",
        )
    if now != pod.expected_boot_id:
        boot_entry.undo_all(host, executor)
        raise Refusal(
            Reason.BOOTED_BACK,
            f"The host was restarted (boot {now}, before {pod.expected_boot_id}) and is in its installed system again; "
            "the discovery entry was removed from it.",
        )
    return now


def _wanted(loader: BootLoader, pod: Pod, arguments: Mapping[str, Any]) -> tuple[Wanted, Wanted]:
    name = re.sub(r"[^A-Za-z0-9-]", "-", pod.infra_env) or "discovery"
    return (
        Wanted(_required(arguments, "kernel_url"), f"{loader.discovery}/vmlinuz", _hash(arguments, "kernel_sha256")),
        Wanted(
            _required(arguments, "initrd_url"),
            f"{loader.discovery}/{name}-initrd.img",
            _hash(arguments, "initrd_sha256"),
        ),
    )


def _not_one_shot(loader: BootLoader, lasts: str) -> Refusal:
    return Refusal(
        Reason.NOT_ONE_SHOT,
        f"With {loader.name} on this host discovery could not be chosen for one boot only: {lasts}. "
        "HOSTLER_RECLAIM_REQUIRE_ONE_SHOT is set, so nothing was changed.",
    )


def _ensure_space(
    host: Host, web: Web, executor: Executor, pod: Pod, loader: BootLoader, files: tuple[Wanted, ...], say: Say
) -> bool:
    """Ask for the sizes first: a boot partition that is filled up is worse than one without our files.

    Says whether the host's rollback deployment had to go, which is done only where a setting allows it.
    """
    needed = _most_needed(host, web, files) + SLACK
    if needed <= host.free(loader.discovery):
        return False
    can_clean = host.is_file(RPM_OSTREE)
    if can_clean and pod.clean_boot:
        say("cleanup", 0)
        executor.run("rpm-ostree", "cleanup", "--rollback", patience=CLEANUP_SECONDS)
        if needed <= host.free(loader.discovery):
            return True
    remedy = "remove old kernels from it"
    if can_clean and not pod.clean_boot:
        remedy += ", or set HOSTLER_RECLAIM_CLEAN_BOOT=true to let the agent remove the rollback deployment"
    raise Refusal(
        Reason.NO_SPACE,
        f"{loader.boot} on the host has {_megabytes(host.free(loader.discovery))} free and {_megabytes(needed)} are "
        f"needed; {remedy}.",
    )


def _most_needed(host: Host, web: Web, files: tuple[Wanted, ...]) -> int:
    """The most these downloads take at any time: each is written beside an earlier one, which goes when it is whole."""
    most = taken = 0
    for wanted in files:
        size, place = web.look(wanted.url).size, host.at(wanted.path)
        if size is None:
            raise Refusal(Reason.ARTIFACTS_UNAVAILABLE, f"{wanted.url} does not say how large it is.")
        earlier = place.stat().st_size if place.is_file() else 0
        if earlier and wanted.sha256 and measure(place).sha256 == wanted.sha256:
            continue  # it is not fetched again
        part = host.at(f"{wanted.path}.part")
        taken += max(0, size - (part.stat().st_size if part.is_file() else 0))
        most = max(most, taken)
        taken -= earlier
    return most


def _fetch(host: Host, web: Web, wanted: Wanted, what: str, say: Say) -> Fetched:
    """The file, from the disk where it is already there with the announced hash."""
    place = host.at(wanted.path)
    if wanted.sha256 and place.is_file():
        found = measure(place)
        if found.sha256 == wanted.sha256:
            return found
    size = web.look(wanted.url).size or 0

    def told(done: int) -> None:
        say(what, done * 100 // max(1, size))

    got = web.download(wanted.url, place, wanted.sha256, told, size or None)
    if size and got.size != size:
        place.unlink(missing_ok=True)
        raise Refusal(Reason.DOWNLOAD_FAILED, f"{wanted.url} has {got.size} bytes, but {size} were announced.")
    return got


def _required(arguments: Mapping[str, Any], name: str) -> str:
    found = _text(arguments, name)
    if not found:
        raise Refusal(Reason.BAD_ARGUMENTS, f"The step has no {name}.")
    return found


def _text(arguments: Mapping[str, Any], name: str) -> str:
    found = arguments.get(name, "")
    if not isinstance(found, str):
        raise Refusal(Reason.BAD_ARGUMENTS, f"{name} of the step is not text.")
    return found


def _hash(arguments: Mapping[str, Any], name: str) -> str:
    found = _text(arguments, name).lower()
    if found and not re.fullmatch(r"[0-9a-f]{64}", found):
        raise Refusal(Reason.BAD_ARGUMENTS, f"{name} of the step is not a sha256.")
    return found


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.0f} MB"

"""From files on the boot partition to a host whose next boot is discovery; and all the way back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hostler.agent.executor import Executor, make_mount_writable
from hostler.agent.fetch import Fetched, measure
from hostler.agent.host import Host
from hostler.agent.loaders.detection import detect_loader
from hostler.agent.loaders.loader import OURS, BootLoader, Selected
from hostler.agent.refusal import Reason, Refusal
from hostler.agent.secure_boot import is_damaged


@dataclass(frozen=True)
class Artifact:
    """A file of ours on the host, and what it must be."""

    path: str
    expected: Fetched


@contextmanager
def make_writable(host: Host, executor: Executor, path: str) -> Iterator[None]:
    """RHCOS mounts /boot read-only: writable while we write, as it was afterwards."""
    mount = host.mount_of(path)
    if not mount.read_only:
        yield
        return
    executor.run("mount", "-o", "remount,rw", mount.point)
    try:
        # The pod has its own view of that mount, which keeps its flag; we write through it.
        here = host.at(mount.point)
        if os.statvfs(here).f_flag & os.ST_RDONLY:
            make_mount_writable(here)
        yield
    finally:
        executor.run("mount", "-o", "remount,ro", mount.point)


def check_kernel(host: Host, loader: BootLoader, path: str) -> None:
    """A loader that cannot start a file may wait in its menu for ever: an error page is better known now."""
    if loader.checks_kernel:
        return
    with open(host.at(path), "rb") as file:
        head = file.read(0x206)
    if not loader.can_start(head):
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"The downloaded kernel is not one that {loader.name} can start (it begins with {head[:16]!r}); check "
            "the InfraEnv's boot artifacts.",
        )
    if is_damaged(host.at(path)):
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            "The kernel that was downloaded is not what its signer signed, so it is damaged; check the InfraEnv's boot "
            "artifacts.",
        )


def write_entry(
    loader: BootLoader, executor: Executor, kernel: Artifact, initrd: Artifact, words: Sequence[str]
) -> Selected:
    """Write the entry, choose it for the next boot, and read everything back; or take it all back and say why not."""
    try:
        selected = loader.write_entry(executor, kernel.path, initrd.path, words)
        verify_entry(loader, kernel, initrd, selected)
    except Refusal as refusal:
        try:
            undo_entry(loader, executor)
        except Refusal as also:
            raise Refusal(refusal.reason, f"{refusal.sentence} It could not be taken back: {also.sentence}") from also
        raise
    return selected


def verify_entry(loader: BootLoader, kernel: Artifact, initrd: Artifact, selected: Selected) -> None:
    """Read back from disk what the loader will read: files whole, paths right, entry chosen."""
    host = loader.host
    linux, image = loader.read_paths(selected)
    for spelled, artifact in ((linux, kernel), (image, initrd)):
        path = loader.locate_path(spelled)
        if not spelled or not host.is_file(path):
            # systemd-boot would hide such an entry without a word.
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"The entry names {spelled or 'nothing'}, which is not there.")
        if measure(host.at(path)) != artifact.expected:
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"{path} on the host is not what was downloaded.")
    would = loader.next_entry()
    if would != selected.file:
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE, f"{loader.name} would start {would or 'no entry'}, not {selected.file}."
        )


def check_chosen(host: Host) -> None:
    """Right before the restart: our entry is still there and would be started; a pod that ended took it back."""
    loader = detect_loader(host)
    would = loader.next_entry()
    if OURS not in would or not loader.noted():
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"{loader.name} would start {would or 'the installed system'}: the discovery entry was taken back since it "
            "was written. Try again.",
        )


def find_armed(host: Host) -> str | None:
    """Where on this host something of ours is, as far as it can be seen; None: nowhere."""
    try:
        place = detect_loader(host).discovery
        return place if host.is_dir(place) else None
    except (Refusal, OSError):
        return None


def undo_all(host: Host, executor: Executor, known: str | None = None) -> bool:
    """Take back whatever we put on this host: it starts its installed system again. Whether there was anything.

    `known`: where something of ours is known to be; empty: somewhere. Then not to see it is no answer, but a Refusal.
    """
    try:
        loader = detect_loader(host)
    except Refusal:
        if known is not None:
            raise
        return False  # without a loader we know, nothing was ever written
    if not host.is_dir(loader.discovery):
        if known and known != loader.discovery:
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"{known} of the host cannot be seen any more.")
        return False
    with make_writable(host, executor, loader.discovery):
        undo_entry(loader, executor)
        for name in host.names(loader.discovery):
            host.remove(f"{loader.discovery}/{name}")
        host.remove(loader.discovery)
    return True


def undo_entry(loader: BootLoader, executor: Executor) -> None:
    """The entry and its selection are gone; the downloads stay, so that another attempt can use them."""
    noted = loader.noted()
    if not noted:
        return
    loader.take_back(executor, noted)
    loader.forget_notes()

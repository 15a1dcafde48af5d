"""From files on the boot partition to a host whose next boot is discovery; and all the way back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hostler.agent import bls, entry, pe, selection
from hostler.agent.executor import Executor
from hostler.agent.fetch import Fetched, measure
from hostler.agent.host import Host
from hostler.agent.loaders import Kind, Loader, detect, loader_variable, path_for_loader, path_from_loader, read_entries
from hostler.agent.problem import Reason, Refusal
from hostler.agent.selection import Selected
from hostler.agent.syscalls import make_mount_writable

GRUB = (Kind.GRUB_RHEL, Kind.GRUB_BLS, Kind.GRUB_PLAIN)


@dataclass(frozen=True)
class Artifact:
    """A file of ours on the host, and what it must be."""

    path: str
    expected: Fetched


@contextmanager
def writable(host: Host, executor: Executor, path: str) -> Iterator[None]:
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


def check_kernel(host: Host, loader: Loader, path: str) -> None:
    """A loader that cannot start a file may wait in its menu for ever: an error page is better known now."""
    if loader.kind is Kind.ZIPL:
        return  # it reads the file itself when it is run, and says so
    with open(host.at(path), "rb") as file:
        head = file.read(0x206)
    program = head.startswith(b"MZ")  # what systemd-boot starts, and every kernel with an EFI stub is
    others = head.startswith((b"\x7fELF", b"\x1f\x8b")) or head[0x202:] == b"HdrS"
    if not (program or (others and loader.kind is not Kind.SYSTEMD_BOOT)):
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"What was downloaded as kernel is none that {loader.kind.value} can start (it begins with "
            f"{head[:16]!r}); check the InfraEnv's boot artifacts.",
        )
    if pe.damaged(host.at(path)):
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            "The kernel that was downloaded is not what its signer signed, so it is damaged; check the InfraEnv's boot "
            "artifacts.",
        )


def write(
    host: Host, loader: Loader, executor: Executor, kernel: Artifact, initrd: Artifact, words: Sequence[str]
) -> Selected:
    """Write the entry, choose it for the next boot, and read everything back; or take it all back and say why not."""
    try:
        selected = _write(host, loader, executor, kernel, initrd, words)
        verify(host, loader, kernel, initrd, selected)
    except Refusal as refusal:
        try:
            undo_entry(host, loader, executor)
        except Refusal as also:
            raise Refusal(refusal.reason, f"{refusal.sentence} It could not be taken back: {also.sentence}") from also
        raise
    return selected


def _write(
    host: Host, loader: Loader, executor: Executor, kernel: Artifact, initrd: Artifact, words: Sequence[str]
) -> Selected:
    linux = path_for_loader(host, loader, kernel.path)
    image = path_for_loader(host, loader, initrd.path)
    file, version = entry.FILES[loader.kind], entry.FIRST
    taking = loader.kind in GRUB and selection.needs_block(host, loader)
    if loader.kind is Kind.GRUB_PLAIN:
        if early := loader.config.read_too_early:
            raise Refusal(
                Reason.UNKNOWN_BOOTLOADER,
                f"{loader.grub_dir}/grub.cfg sets its default after it has read {early}, so an entry there cannot be "
                "chosen.",
            )
        if not loader.hook:
            raise Refusal(
                Reason.UNKNOWN_BOOTLOADER,
                f"{loader.grub_dir}/grub.cfg reads neither entries nor a custom.cfg, so nothing can be added to it.",
            )
        _write_block(host, loader, entry.menuentry(linux, image, words), *([entry.TAKE_NEXT] if taking else []))
        return selection.select_grub(host, loader, file)
    if taking:  # the first entry stays the installed system's: it is what GRUB starts when nothing is named
        file, version = entry.LAST_FILE, entry.LAST
    text = entry.snippet(loader.kind, linux, image, words, version)
    if loader.kind is Kind.SYSTEMD_BOOT and selection.systemd_counts(host, loader, bls.parse(entry.COUNTED, text)):
        file = entry.COUNTED
    selection.note(host, loader, {"entry": f"{loader.entries}/{file}"})
    host.write(f"{loader.entries}/{file}", text.encode())
    if loader.kind is Kind.SYSTEMD_BOOT:
        return selection.select_systemd(host, loader, executor, file)
    if loader.kind is Kind.ZIPL:
        executor.run("zipl")
        return Selected(file.removesuffix(bls.SUFFIX), "zipl's default", selection.why_lasting(host, loader))
    if taking:
        _write_block(host, loader, entry.TAKE_NEXT)
    return selection.select_grub(host, loader, file.removesuffix(bls.SUFFIX))


def _write_block(host: Host, loader: Loader, *parts: str) -> None:
    """Our block, in the file of the owner's that grub.cfg reads."""
    selection.note(host, loader, {"custom": loader.hook})
    _write_hook(host, loader.hook, entry.with_block(_read_hook(host, loader.hook), *parts))


def _read_hook(host: Host, path: str) -> str:
    """The owner's file with every byte of it, in whatever encoding it is."""
    return (host.read(path) or b"").decode("utf-8", "surrogateescape")


def _write_hook(host: Host, path: str, text: str) -> None:
    host.write(path, text.encode("utf-8", "surrogateescape"))


def verify(host: Host, loader: Loader, kernel: Artifact, initrd: Artifact, selected: Selected) -> None:
    """Read back from disk what the loader will read: files whole, paths right, entry chosen."""
    linux, image = _paths_in_entry(host, loader, selected)
    for spelled, artifact in ((linux, kernel), (image, initrd)):
        path = path_from_loader(host, loader, spelled)
        if not spelled or not host.is_file(path):
            # systemd-boot would hide such an entry without a word.
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"The entry names {spelled or 'nothing'}, which is not there.")
        if measure(host.at(path)) != artifact.expected:
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"{path} on the host is not what was downloaded.")
    would = _would_start(host, loader)
    if would != selected.file:
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"{loader.kind.value} would start {would or 'no entry'}, not {selected.file}.",
        )


def check_chosen(host: Host) -> None:
    """Right before the restart: our entry is still there and would be started; a pod that ended took it back."""
    loader = detect(host)
    would = _would_start(host, loader)
    if "assisted-discovery" not in would or not selection.noted(host, loader):
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"{loader.kind.value} would start {would or 'the installed system'}: the discovery entry was taken back "
            "since it was written. Try again.",
        )


def _paths_in_entry(host: Host, loader: Loader, selected: Selected) -> tuple[str, str]:
    if loader.kind is Kind.GRUB_PLAIN:
        linux, initrd, _ = entry.parse_menuentry(host.text(loader.hook) or "")
        return linux, initrd
    file = selected.file if selected.file.endswith(bls.SUFFIX) else selected.file + bls.SUFFIX
    written = bls.parse(file, host.text(f"{loader.entries}/{file}") or "")
    return written.get("linux"), written.get("initrd")


def _would_start(host: Host, loader: Loader) -> str:
    if loader.kind is Kind.SYSTEMD_BOOT:
        return selection.chosen_by_systemd(host, loader)
    if loader.kind is Kind.ZIPL:
        ordered = bls.order_rhel(read_entries(host, loader.entries))
        return ordered[0].id if ordered else ""
    return selection.grub_state(host, loader).next()


def armed(host: Host) -> str | None:
    """Where on this host something of ours is, as far as it can be seen; None: nowhere."""
    try:
        place = detect(host).discovery
        return place if host.is_dir(place) else None
    except (Refusal, OSError):
        return None


def undo(host: Host, executor: Executor, known: str | None = None) -> bool:
    """Take back whatever we put on this host: it starts its installed system again. Says whether there was anything.

    `known`: where something of ours is known to be; empty: somewhere. Then not to see it is no answer, but a Refusal.
    """
    try:
        loader = detect(host)
    except Refusal:
        if known is not None:
            raise
        return False  # without a loader we know, nothing was ever written
    if not host.is_dir(loader.discovery):
        if known and known != loader.discovery:
            raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"{known} of the host cannot be seen any more.")
        return False
    with writable(host, executor, loader.discovery):
        undo_entry(host, loader, executor)
        for name in host.names(loader.discovery):
            host.remove(f"{loader.discovery}/{name}")
        host.remove(loader.discovery)
    return True


def undo_entry(host: Host, loader: Loader, executor: Executor) -> None:
    """The entry and its selection are gone; the downloads stay, so that another attempt can use them."""
    noted = selection.noted(host, loader)
    if not noted:
        return
    if "grubenv" in noted:
        selection.restore_grub(host, loader, noted["grubenv"], made="made" in noted)
    if "custom" in noted:
        kept = entry.without_block(_read_hook(host, noted["custom"]))
        if kept:
            _write_hook(host, noted["custom"], kept)
        else:
            host.remove(noted["custom"])
    if "entry" in noted:
        for name in host.names(loader.entries):
            if "assisted-discovery" in name:  # a counter in the name may have moved
                host.remove(f"{loader.entries}/{name}")
        if loader.kind is Kind.ZIPL:
            executor.run("zipl")
    if "oneshot" in noted and loader_variable(host, "LoaderEntryOneShot") == noted["oneshot"]:
        executor.run("bootctl", "set-oneshot", "")
    host.remove(f"{loader.discovery}/{selection.NOTE}")

"""Other projects' Go modules that are changed before they are built: whole files from `mended/`, or single pieces."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from hostler.errors import Complaint
from hostler.sandbox.gotool import environment

# Modules with a defect that stops the sandbox: our files for them are in mended/, each with its reason.
MENDED = ("sigs.k8s.io/kwok",)


class Edit(msgspec.Struct, frozen=True):
    """A piece of a module that is replaced before it is built; it must be there exactly once."""

    file: str
    old: str
    new: str


# How Cluster API's managers serve their webhooks. They have no flag for the address and would listen on every
# interface; and they end themselves where the user has no inotify instance left to watch the certificate with (a user
# has 128, and nine sandboxes need as many), so it is read for each connection.
_READ_CERTIFICATE = (
    "TLSOpts: append(tlsOptions, func(config *tls.Config) { config.GetCertificate = "
    "func(*tls.ClientHelloInfo) (*tls.Certificate, error) { "
    'pair, err := tls.LoadX509KeyPair(webhookCertDir+"/"+webhookCertName, webhookCertDir+"/"+webhookKeyName); '
    "return &pair, err } }),"
)
_SERVING = (
    ("import (\n", 'import (\n\t"crypto/tls"\n'),
    ("webhook.Options{\n", 'webhook.Options{\n\t\t\t\tHost: "127.0.0.1",\n'),
    ("TLSOpts:  tlsOptions,", _READ_CERTIFICATE),
)
EDITS = {
    "sigs.k8s.io/cluster-api": tuple(
        Edit(f"{folder}/main.go", old, new)
        for folder in ("core", "bootstrap/kubeadm", "controlplane/kubeadm")
        for old, new in _SERVING
    ),
}


def _edited(folder: Path) -> list[str]:
    """The modules with EDITS that this program is built from."""
    table = (folder / "go.mod").read_text()
    return [module for module in EDITS if re.search(rf"^\s*{re.escape(module)} v", table, re.MULTILINE)]


def edits_of(folder: Path) -> list[Edit]:
    """Every edit that goes into this program."""
    return [edit for module in _edited(folder) for edit in EDITS[module]]


def change_modules(go: str, folder: Path, scratch: Path) -> list[str]:
    """The flag for a go.mod in which each module of `mended/` or EDITS is a copy of it, changed.

    Go refuses to lay files over its module cache (-overlay), so the module is copied.
    """
    mended = [module for module in MENDED if (folder / "mended" / module).is_dir()]
    edited = _edited(folder)
    if not mended and not edited:
        return []
    table = (folder / "go.mod").read_text()
    for module in (*mended, *edited):
        listed = [go, "list", "-m", "-f", "{{.Dir}}", module]
        original = subprocess.check_output(listed, cwd=folder, env=environment(), text=True).strip()
        copy = scratch / "modules" / module
        _lay_over(Path(original), copy)
        _lay_over(folder / "mended" / module, copy)
        for edit in EDITS.get(module, ()):
            _edit(copy / edit.file, edit)
        table += f"replace {module} => {copy}\n"
    (scratch / "go.mod").write_text(table)
    shutil.copyfile(folder / "go.sum", scratch / "go.sum")
    return [f"-modfile={scratch / 'go.mod'}"]


def _edit(file: Path, edit: Edit) -> None:
    text = file.read_text()
    if text.count(edit.old) != 1:
        raise Complaint(f"{edit.file} of this version is not as expected: it has no single {edit.old.strip()!r}.")
    file.write_text(text.replace(edit.old, edit.new))


def _lay_over(source: Path, target: Path) -> None:
    """Copy the files only: Go's module cache is read-only, and the copy must not be."""
    for file in source.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)

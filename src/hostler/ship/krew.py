"""`kubectl hostler` by krew: an archive with our wheel and a launcher, and the manifest of the plugin.

The launcher makes an environment of its own at the first call, from the wheel and from PyPI. pip checks every library
by its hash in requirements.lock.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml

from hostler import __version__
from hostler.ship.image import needed

ARCHIVE = "kubectl-hostler.tar.gz"
LAUNCHER = """\
#!/bin/sh
# kubectl hostler: Hostler's command line in an environment of its own, made at the first call.
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")
home=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-hostler/@VERSION@
if [ ! -e "$home/made" ]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "kubectl hostler: needs Python 3.11 or newer as python3" >&2
    exit 1
  }
  echo "kubectl hostler: making $home; this happens once" >&2
  rm -rf "$home"
  python3 -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.txt"
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "$here/@WHEEL@"
  touch "$home/made"
fi
exec "$home/bin/hostler" "$@"
"""
CAVEATS = """\
The first call makes a Python environment in ~/.cache/kubectl-hostler. It needs Python 3.11 or newer, and PyPI.
"""


def runtime_requirements(lock: str, names: Collection[str]) -> str:
    """The entries of these packages in requirements.lock, with their hashes."""
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    named = {re.sub(r"[-_.]+", "-", entry.partition("==")[0]).lower(): entry for entry in entries if "==" in entry}
    return "".join(named[name] for name in sorted(names))


def write_plugin(folder: Path, root: Path, wheel: Path, source: str) -> Path:
    """The archive and hostler.yaml in `folder`; the archive is found at `source`, in the release of this version."""
    launcher = LAUNCHER.replace("@VERSION@", __version__).replace("@WHEEL@", wheel.name)
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    archive = _pack({
        "kubectl-hostler": launcher.encode(), wheel.name: wheel.read_bytes(),
        "requirements.txt": runtime_requirements(lock, needed("hostler")).encode(),
        "LICENSE": (root / "LICENSE").read_bytes(),
    })  # fmt: skip
    (folder / ARCHIVE).write_bytes(archive)
    path = folder / "hostler.yaml"
    path.write_text(yaml.safe_dump(_manifest(archive, source), sort_keys=False, width=1000), encoding="utf-8")
    return path


def _manifest(archive: bytes, source: str) -> dict[str, object]:
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": f"{source}/releases/download/v{__version__}/{ARCHIVE}",
        "sha256": hashlib.sha256(archive).hexdigest(),
        "bin": "kubectl-hostler",
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "hostler"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": source,
            "shortDescription": "Look after the hosts under a cluster",
            "description": "Shows every host under a cluster with its history, explains why something was or was not "
            "done, holds, drains and releases nodes, and stops every write of the operator.\n",
            "caveats": CAVEATS,
            "platforms": [platform],
        },
    }


def _pack(files: Mapping[str, bytes]) -> bytes:
    """The same files give the same bytes."""
    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name == "kubectl-hostler" else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(bare.getvalue(), mtime=0)

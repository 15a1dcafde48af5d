"""What `.ci/grub` says and leaves. The packages are real ones; the apt-get here only hands them out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools import tool

SCRIPT = Path(__file__).parents[2] / ".ci/grub"
APT = """#!/bin/sh
case "$*" in
  *indextargets*) cat "$FAKE/mirrors" ;;
  *update*) echo try >> "$FAKE/tries"; [ "$(wc -l < "$FAKE/tries")" -gt "$(cat "$FAKE/fails")" ] ;;
  *download*) cp "$FAKE"/*.deb . ;;
esac
"""


def fetch(
    place: Path, *, version: str = "2.14-2", module: str = "blsuki.mod", fails: int = 0, mirrors: int = 400
) -> str:
    """What it said; `mirrors` is how many lines apt has of them."""
    package = place / "package"
    (package / "DEBIAN").mkdir(parents=True, exist_ok=True)
    words = f"Package: grub-efi-amd64-bin\nVersion: {version}\nArchitecture: amd64\nMaintainer: a <a@example>\n"
    (package / "DEBIAN/control").write_text(f"{words}Description: none\n")
    modules = package / "usr/lib/grub/x86_64-efi"
    modules.mkdir(parents=True, exist_ok=True)
    (modules / module).write_text("module")
    subprocess.run([tool("dpkg-deb", "dpkg"), "-b", package, place / "grub.deb"], check=True, capture_output=True)
    # More than a pipe holds: whoever stops reading after the first line must not end the script.
    (place / "mirrors").write_text("http://mirror.example/debian/\n" * mirrors * 10)
    (place / "fails").write_text(str(fails))
    (place / "tries").write_text("")
    programs = place / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in (("apt-get", APT), ("sleep", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    told = {"PATH": f"{programs}:{os.environ['PATH']}", "FAKE": str(place), "HOSTLER_CACHE_DIR": str(place / "cache")}
    done = subprocess.run([SCRIPT], env={**os.environ, **told}, capture_output=True, text=True, timeout=60)
    return f"{done.returncode} {(done.stdout + done.stderr).strip()}"


def test_grub_is_fetched_once_and_its_version_is_said(tmp_path: Path) -> None:
    assert fetch(tmp_path, fails=2) == "0 ci: GRUB 2.14-2 was fetched from Debian sid"
    assert (tmp_path / "tries").read_text().split() == ["try"] * 3
    assert (tmp_path / "cache/grub-2.14/x86_64-efi/blsuki.mod").exists()
    assert fetch(tmp_path, fails=9) == "0 ci: GRUB 2.14-2 is in the cache"
    assert [one.name for one in (tmp_path / "cache").iterdir()] == ["grub-2.14"]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"fails": 3}, "the list of Debian sid's packages could not be fetched, three times"),
        ({"mirrors": 0}, "apt has no Debian mirror here (apt-get update first)"),
        ({"version": "2.12-9"}, "Debian sid has GRUB 2.12-9, which is older than 2.14"),
        ({"module": "normal.mod"}, "Debian sid's GRUB 2.14-2 has no module blsuki"),
    ],
)
def test_each_failure_is_said_and_leaves_nothing(tmp_path: Path, told: dict[str, Any], says: str) -> None:
    assert fetch(tmp_path, **told) == f"1 ci: {says}"
    assert not list((tmp_path / "cache").iterdir())

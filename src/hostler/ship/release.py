"""`make release-check`: whatever of a release needs no network. Says what is wrong before a tag is pushed.

    python -m hostler.ship.release v0.1.0 dist registry.example.com/hostler https://github.com/OWNER/REPOSITORY

The tag, the package and the chart have one version, CHANGELOG.md has a section for it, which becomes the notes of the
release, and everything that is made from tables is as it would be made now. Then it writes the notes, the wheel, what
clusterctl, OLM and krew read, and the configuration of kube-state-metrics. The last two arguments say where the image
and the release are found.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from hostler import __version__
from hostler.ship import chart, components, krew, olm, state_metrics

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "https://github.com/OWNER/REPOSITORY"  # where it was not named
EXAMPLE = re.compile(r"(?:/hostler:|\btag: )([0-9]\S*?)[\s}`]")  # an image or a chart in the documentation


def problems(root: Path, tag: str) -> list[str]:
    """Every reason not to release, as sentences."""
    found = []
    version = tag.removeprefix("v")
    if tag != f"v{__version__}":
        found.append(f"The tag is {tag}, but the package is {__version__}; set src/hostler/__init__.py.")
    described = yaml.safe_load((root / "chart/Chart.yaml").read_text())
    for key in ("version", "appVersion"):
        if str(described[key]) != version:
            found.append(f"chart/Chart.yaml has {key} {described[key]}, not {version}.")
    if not notes(root, version):
        found.append(f"CHANGELOG.md has no section `## {version}`.")
    series = tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])
    if series not in components.SERIES:
        found.append(f"SERIES in src/hostler/ship/components.py does not say which contract {version} follows.")
    shown = set(EXAMPLE.findall((root / "docs/install.md").read_text(encoding="utf-8")))
    found += [
        f"docs/install.md shows how to install {shown_version}, not {version}."
        for shown_version in sorted(shown - {version})
    ]
    for path, text in chart.files(root):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(f"{path.relative_to(root)} is not as it would be made now; run `make chart`.")
    return found


def notes(root: Path, version: str) -> str:
    """The section of the changelog about this version, without its heading."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(version)}(?![\w.+-])[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def write_packages(target: Path, image: str, source: str) -> None:
    """Everything of a release but the image and the chart's archive."""
    target.mkdir(parents=True, exist_ok=True)
    components.write_repository(target, image)
    olm.write_bundle(target, image, source)
    krew.write_plugin(target, ROOT, build_wheel(target), source)
    metrics = yaml.safe_dump(state_metrics.configuration(), sort_keys=False, width=1000)
    (target / "kube-state-metrics.yaml").write_text(metrics, encoding="utf-8")
    roles = yaml.safe_dump(state_metrics.rights(), sort_keys=False)
    (target / "kube-state-metrics-rights.yaml").write_text(roles, encoding="utf-8")


def build_wheel(target: Path) -> Path:
    """By hatchling, which is locked as everything else; no network."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--no-build-isolation", "--wheel-dir", str(target), str(ROOT)]  # fmt: skip
    subprocess.run(command, check=True)
    return target / f"hostler-{__version__}-py3-none-any.whl"


def main() -> None:
    if len(sys.argv) not in (3, 4, 5):
        sys.exit("usage: python -m hostler.ship.release TAG DIRECTORY [IMAGE [SOURCE]]")
    tag, target = sys.argv[1], Path(sys.argv[2])
    if not re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+([-+].+)?", tag):
        sys.exit(f'release: "{tag}" is not the tag of a release; as in: make release-check TAG=v{__version__}')
    found = problems(ROOT, tag)
    if found:
        sys.exit("\n".join(["release: not yet:", *(f"  - {one}" for one in found)]))
    write_packages(target, *(*sys.argv[3:], *(components.IMAGE, SOURCE)[len(sys.argv) - 3 :]))
    (target / "notes.md").write_text(notes(ROOT, tag.removeprefix("v")) + "\n", encoding="utf-8")
    print(f"release: {tag} is in order; its notes are {target / 'notes.md'}")


if __name__ == "__main__":
    main()

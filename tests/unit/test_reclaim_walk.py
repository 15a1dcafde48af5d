"""The pages that lead through reclaim and the agent name what exists, and a boot loader is one module and one row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hostler.agent import boot_entry
from hostler.agent.executor import Executor
from hostler.agent.fetch import measure
from hostler.agent.host import Host
from hostler.agent.loaders import detection
from hostler.agent.loaders.loader import BootLoader, Selected
from hostler.agent.refusal import Refusal

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/hostler"
HOP = re.compile(r"`((?:\w+/)*\w+\.py):(\w+)`")
PAGE = (ROOT / "docs/contribute.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.split("## Worked example: a boot loader\n")[1].split("\n## ")[0]
CONFIG = "/boot/extlinux/extlinux.conf"


@cache
def read_module(name: str) -> str:
    return (PACKAGE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "name"), sorted(set(HOP.findall(EXAMPLE))))
def test_every_hop_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.*=", read_module(file), re.MULTILINE)


def test_the_example_names_files_of_tests_that_exist() -> None:
    named = re.findall(r"`(tests/\S+\.py)`", EXAMPLE)
    assert named
    assert [file for file in named if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(("package", "folders"), [("reclaim", ("", "hub/")), ("agent", ("", "loaders/"))])
def test_the_readme_names_every_module(package: str, folders: tuple[str, ...]) -> None:
    readme = (PACKAGE / package / "README.md").read_text(encoding="utf-8")
    modules = {f"{folder}{path.name}" for folder in folders for path in (PACKAGE / package / folder).glob("*.py")} - {
        f"{folder}__init__.py" for folder in folders
    }
    assert modules == set(re.findall(r"`((?:hub/|loaders/)?\w+\.py)`", readme))


class Extlinux(BootLoader):
    """A loader that Hostler does not have: its configuration is one file, and its first line names the entry."""

    name = program = "extlinux"
    looked_for = CONFIG

    @classmethod
    def find(cls, host: Host) -> BootLoader | None:
        return cls(host, "/boot", "", (CONFIG,)) if host.is_file(CONFIG) else None

    def why_lasting(self) -> str:
        return "extlinux has no entry for one boot"

    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        before = self.host.text(CONFIG) or ""
        self.note({"config": before})
        paths = f"linux {self.spell_path(kernel)}\ninitrd {self.spell_path(initrd)}\n"
        self.host.write(CONFIG, f"default assisted-discovery\n{paths}{before}".encode())
        return Selected("assisted-discovery", "its default", self.why_lasting())

    def read_paths(self, selected: Selected) -> tuple[str, str]:
        lines = dict(line.split(" ", 1) for line in (self.host.text(CONFIG) or "").splitlines()[:3])
        return lines["linux"], lines["initrd"]

    def next_entry(self) -> str:
        return (self.host.text(CONFIG) or "").splitlines()[0].removeprefix("default ")

    def take_back(self, executor: Executor, noted: dict[str, Any]) -> None:
        self.host.write(CONFIG, noted["config"].encode())


def test_a_new_boot_loader_is_one_class_and_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, content in ((CONFIG, "default installed\n"), ("/boot/discovery/k", "MZ"), ("/boot/discovery/i", "i")):
        (tmp_path / place.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place.lstrip("/")).write_text(content)
    host, executor = Host(tmp_path), Executor(("true",))
    with pytest.raises(Refusal, match=r"no /etc/zipl\.conf"):
        detection.detect_loader(host)
    monkeypatch.setattr(detection, "LOADERS", (*detection.LOADERS, Extlinux))
    loader = detection.detect_loader(host)
    kernel, initrd = (
        boot_entry.Artifact(path, measure(host.at(path))) for path in ("/boot/discovery/k", "/boot/discovery/i")
    )
    boot_entry.check_kernel(host, loader, kernel.path)
    assert boot_entry.write_entry(loader, executor, kernel, initrd, ["quiet"]).file == "assisted-discovery"
    boot_entry.check_chosen(host)
    assert boot_entry.undo_all(host, executor, "/boot/discovery")
    assert host.text(CONFIG) == "default installed\n"
    assert boot_entry.find_armed(host) is None

"""The programs are built once; afterwards neither Go nor a network is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostler.errors import Complaint
from hostler.sandbox import Sandbox, build
from hostler.sandbox.crds import MODULES, definitions_of
from hostler.sandbox.gotool import cache_dir


def test_a_second_use_needs_no_go_and_no_network(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in build.PROGRAMS:
        build.ensure(program, build.Silent())  # the first use
    for name in MODULES:
        definitions_of(name, build.Silent())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("GOPROXY", "off")
    for program in build.PROGRAMS:
        assert os.access(build.ensure(program, build.Silent()), os.X_OK)
    for name in MODULES:
        assert definitions_of(name, build.Silent())


def test_a_build_that_fails_says_what_go_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOSTLER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(Complaint) as caught:
        build.ensure("vcenter", build.Silent())
    assert "could not be built" in caught.value.sentence
    assert "GOPROXY=off" in caught.value.sentence, "the end of the log"
    assert str(tmp_path / "cache" / "vcenter.log") in caught.value.hint
    assert build.find("vcenter") is None


def test_published_crds_that_cannot_be_downloaded_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOSTLER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(Complaint, match=r"sigs\.k8s\.io/cluster-api could not be downloaded.*GOPROXY=off"):
        definitions_of("capi", build.Silent())


def test_a_cache_directory_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOSTLER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(Complaint, match="HOSTLER_CACHE_DIR"):
        cache_dir()


def test_the_key_is_the_sources() -> None:
    assert build.digest("controlplane") == build.digest("controlplane")
    assert build.digest("controlplane") != build.digest("vcenter")

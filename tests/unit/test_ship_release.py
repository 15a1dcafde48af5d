"""A release that is not in order is refused with every reason; one that is has its notes from the changelog."""

from __future__ import annotations

import json
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from hostler import __version__
from hostler.ship import oci, release
from hostler.ship.sbom import Part, document

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release looks at, free to be changed."""
    for folder in ("chart", "docs", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    text = f"# Changelog\n\n## Unreleased\n\n- Later.\n\n## {__version__} (today)\n\n- Now.\n\n## 0.0.1\n\n- Once.\n"
    (tmp_path / "CHANGELOG.md").write_text(text)
    return tmp_path


def test_one_in_order_has_its_notes(tree: Path) -> None:
    assert release.problems(tree, f"v{__version__}") == []
    assert release.notes(tree, __version__) == "- Now."
    assert release.notes(tree, "0.0.1") == "- Once."


def test_the_notes_are_of_this_very_version(tree: Path) -> None:
    log = tree / "CHANGELOG.md"
    log.write_text(log.read_text().replace("## 0.0.1", "## 0.0.1-rc.1"))
    assert release.notes(tree, "0.0.1") == ""
    assert release.notes(tree, "0.0.1-rc.1") == "- Once."


@pytest.mark.parametrize("tag", ["", "0.1.0", "v1"])
def test_what_is_no_tag_is_the_only_thing_said(tag: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["release", tag, str(tmp_path / "dist")])
    with pytest.raises(SystemExit, match=f'release: "{tag}" is not the tag of a release; as in: make'):
        release.main()


def test_every_reason_is_said_at_once(tree: Path) -> None:
    chart = tree / "chart/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"version: {__version__}", "version: 9.9.9", 1))
    (tree / "chart/files/rights.yaml").write_text("capabilities: []\n")
    found = release.problems(tree, "v7.0.0")
    assert len(found) == 7
    assert [one for one in found if "does not say which contract 7.0.0 follows" in one]
    assert [one for one in found if one == f"docs/install.md shows how to install {__version__}, not 7.0.0."]
    assert [one for one in found if "The tag is v7.0.0" in one]
    assert [one for one in found if "no section `## 7.0.0`" in one]
    assert [one for one in found if "rights.yaml is not as it would be made now" in one]


def test_a_layout_has_the_same_bytes_whoever_packs_it(tmp_path: Path) -> None:
    digests = []
    for name, mode in (("one", 0o600), ("two", 0o644)):
        folder = tmp_path / name
        (folder / "b").mkdir(parents=True)
        for file in ("z", "a", "b/c"):
            (folder / file).write_text(file)
            (folder / file).chmod(mode)
        (folder / "run").write_text("#!/bin/sh\n")
        (folder / "run").chmod(0o700)
        layout = tmp_path / f"layout-{name}"
        labels = {"org.opencontainers.image.version": "1"}
        digests.append(oci.write_layout(layout, [folder], entrypoint=["/run"], environment={}, user="1", labels=labels))
    assert digests[0] == digests[1]
    config = oci.unpack(tmp_path / "layout-one", tmp_path / "root")
    assert config["config"]["Entrypoint"] == ["/run"]
    assert (tmp_path / "root/b/c").read_text() == "b/c"
    assert (tmp_path / "root/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "root/a").stat().st_mode & 0o777 == 0o644


def layout_of(tmp_path: Path, machine: str, monkeypatch: pytest.MonkeyPatch, version: str = "1") -> Path:
    """A layout as it would be made on that machine."""
    folder = tmp_path / f"files-{machine}-{version}"
    folder.mkdir()
    (folder / "machine").write_text(machine)
    monkeypatch.setattr("platform.machine", lambda: machine)
    labels = {"org.opencontainers.image.version": version}
    layout = tmp_path / f"layout-{machine}-{version}"
    oci.write_layout(layout, [folder], entrypoint=["/run"], environment={}, user="1", labels=labels)
    return layout


def test_images_of_several_machines_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = [layout_of(tmp_path, machine, monkeypatch) for machine in ("x86_64", "aarch64")]
    digest = oci.join(layouts, tmp_path / "both")
    (entry,) = json.loads((tmp_path / "both/index.json").read_text())["manifests"]
    assert (entry["digest"], entry["annotations"]) == (digest, {"org.opencontainers.image.ref.name": "1"})
    inside = json.loads(oci.read(tmp_path / "both", digest))
    assert [one["platform"]["architecture"] for one in inside["manifests"]] == ["amd64", "arm64"]
    before = [json.loads((one / "index.json").read_text())["manifests"][0]["digest"] for one in layouts]
    assert [one["digest"] for one in inside["manifests"]] == before, "what was signed for one machine stays what it was"
    for machine in ("x86_64", "aarch64"):
        config = oci.unpack(tmp_path / "both", tmp_path / f"root-{machine}", machine)
        assert config["architecture"] == oci.MACHINES[machine]
        assert (tmp_path / f"root-{machine}/machine").read_text() == machine


def test_images_of_one_machine_or_of_two_versions_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = layout_of(tmp_path, "x86_64", monkeypatch)
    other = layout_of(tmp_path, "aarch64", monkeypatch, "2")
    for wrong in ([one, one], [one, other]):
        with pytest.raises(ValueError, match="not one version for different machines"):
            oci.join(wrong, tmp_path / "both")


def test_a_blob_that_was_changed_is_not_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "a").write_text("a")
    labels = {"org.opencontainers.image.version": "1"}
    oci.write_layout(tmp_path / "layout", [folder], entrypoint=[], environment={}, user="1", labels=labels)
    for blob in (tmp_path / "layout/blobs/sha256").iterdir():
        blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(ValueError, match="is not what its name says"):
        oci.unpack(tmp_path / "layout", tmp_path / "root")


def test_an_sbom_names_each_part_once() -> None:
    made = json.loads(document([Part("a", "1", "MIT", "pkg:pypi/a@1"), Part("b_c", "2+x")], "sha256:ab"))
    ids = [one["SPDXID"] for one in made["packages"]]
    assert ids == ["SPDXRef-a-1", "SPDXRef-b-c-2-x"]
    assert made["packages"][0]["externalRefs"][0]["referenceLocator"] == "pkg:pypi/a@1"
    assert {one["relatedSpdxElement"] for one in made["relationships"]} == set(ids)


WORKFLOWS = {path.name: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yaml"))}
JOBS = {(name, job): told for name, text in WORKFLOWS.items() for job, told in yaml.safe_load(text)["jobs"].items()}
STEPS = [(name, step) for (name, _), job in JOBS.items() for step in job.get("steps", ())]


def test_the_workflows_use_what_is_there() -> None:
    """They run nowhere but where they are hosted; what of ours they call can be looked at here."""
    told = "\n".join(step.get("run", "") for _, step in STEPS)
    targets = {word for words in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", told) for word in words.split()}
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"env", "release-check"} <= targets <= set(made)
    modules = re.findall(r"-m (hostler[.\w]+)", told)
    assert modules
    assert all(find_spec(one) for one in modules)
    assert all(os.access(ROOT / one, os.X_OK) for one in re.findall(r"\.ci/[a-z-]+", told))
    tests = JOBS["test.yaml", "test"]
    assert tests["container"]["image"].startswith("debian:"), "what .ci/run installs has these names only there"
    # What a step reads of another, that one has said.
    for name, outcome in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", json.dumps(STEPS)):
        (run,) = [step["run"] for _, step in STEPS if step.get("id") == name]
        assert f'echo "{outcome}=' in run


def test_what_others_wrote_is_named_by_commit() -> None:
    """A tag can be moved by whoever gets hold of it, and this job signs for us."""
    used = re.findall(r"uses: (\S+)(.*)", "\n".join(WORKFLOWS.values()))
    assert len(used) > 10
    for name, comment in used:
        if name.startswith("./"):
            assert (ROOT / name).is_file()
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name), name
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), "which version that is"


def test_nothing_is_filled_into_a_script_and_rights_are_few() -> None:
    for _, step in STEPS:
        assert "${{" not in step.get("run", ""), "what GitHub fills in there would be run"
        if "checkout" in step.get("uses", ""):
            assert step["with"] == {"persist-credentials": False}
    for text in WORKFLOWS.values():
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert [key for key, job in JOBS.items() if "permissions" in job] == [("release.yaml", "release")]


def test_a_release_waits_for_the_tests_and_for_an_image_of_each_machine() -> None:
    jobs = {job: told for (name, job), told in JOBS.items() if name == "release.yaml"}
    assert set(jobs["release"]["needs"]) == {"test", "image"}
    assert jobs["test"]["uses"] == "./.github/workflows/test.yaml"
    assert "workflow_call:" in WORKFLOWS["test.yaml"]
    machines = [one["machine"] for one in jobs["image"]["strategy"]["matrix"]["include"]]
    assert machines == list(oci.MACHINES.values())
    tried = next(step["run"] for step in jobs["image"]["steps"] if "pytest" in step.get("run", ""))
    file, word = re.findall(r"(tests/\S+) -k (\w+)", tried)[0]
    assert f"def test_{word}" in (ROOT / file).read_text()


def test_image_and_chart_are_signed_and_attested() -> None:
    signing = next(step for _, step in STEPS if "cosign sign" in step.get("run", ""))
    signed = {name: f"${{{{ steps.{name.lower()}.outputs.digest }}}}" for name in ("IMAGE", "CHART")}
    for name, digest in signed.items():
        assert re.search(rf'cosign sign --yes( --recursive)? "\${name}"', signing["run"])
        assert signing["env"][name].endswith(f"hostler@{digest}")
    assert "cosign attest --yes --type spdxjson" in signing["run"]
    attested = [
        step["with"]["subject-digest"] for _, step in STEPS if "attest-build-provenance" in step.get("uses", "")
    ]
    assert attested == list(signed.values())

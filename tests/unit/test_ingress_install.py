"""What an installation decides, every broken input with all its problems, and files written all or not at all."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.cli.main import execute
from hostler.errors import Exit
from hostler.ingress import install_config
from hostler.ingress.install_config import Config
from hostler.join import ignition
from tests.unit.kube_pki import Authority

ROOT = Authority("root")

FILES = [
    "manifests/cluster-infrastructure-02-config.yml",
    "manifests/cluster-ingress-02-config.yml",
    "manifests/cluster-scheduler-02-config.yml",
    "worker.ign",
]


def given(**more: Any) -> dict[str, Any]:
    """The smallest install-config: platform none, one control-plane node, no workers."""
    return {
        "apiVersion": "v1",
        "baseDomain": "example.org",
        "metadata": {"name": "edge"},
        "controlPlane": {"name": "master", "replicas": 1},
        "compute": [{"name": "worker", "replicas": 0}],
        "platform": {"none": {}},
        **more,
    }


def workers(count: int) -> list[dict[str, Any]]:
    return [{"name": "worker", "replicas": count}]


def read(config: Any) -> Config:
    found = install_config.read(config)
    assert isinstance(found, Config), found
    return found


SNO, DUAL, HA, ARBITER = "SingleReplica", "DualReplica", "HighlyAvailable", "HighlyAvailableArbiter"


EDGE = {"name": "edge", "replicas": 2}


@pytest.mark.parametrize(("compute", "count"), [
    (None, 3), ([], 3), ([{"name": "edge"}], 3), ([EDGE], 5), ([EDGE, *workers(0)], 2), (workers(0), 0), ([{}], 3),
])  # fmt: skip
def test_a_list_without_a_worker_pool_gets_one_of_three_from_the_installer(compute: Any, count: int) -> None:
    found = read(given(compute=compute))
    assert found.workers == count
    made = {one.file: one.body for one in install_config.manifests(found)}
    assert made[FILES[2]]["spec"]["mastersSchedulable"] is (count == 0)


@pytest.mark.parametrize("platform", ["none", "external", "aws", "baremetal", "vsphere"])
@pytest.mark.parametrize(("masters", "arbiter", "topology"), [
    (1, 0, SNO), (2, 0, DUAL), (3, 0, HA), (5, 0, HA), (None, 0, HA), (2, 1, ARBITER), (3, 1, ARBITER),
])  # fmt: skip
@pytest.mark.parametrize("count", [0, 1, 2, 3, None])
def test_every_layout(platform: str, masters: int | None, arbiter: int, topology: str, count: int | None) -> None:
    pool: dict[str, Any] = {} if masters is None else {"replicas": masters}
    compute = {} if count is None else {"compute": workers(count)}
    config = given(
        platform={platform: {}}, controlPlane=pool, **({"arbiter": {"replicas": arbiter}} if arbiter else {})
    )
    config = {**{key: value for key, value in config.items() if key != "compute"}, **compute}
    found = read(config)
    assert install_config.decide_layout(found).control_plane == topology
    nodes = 3 if count is None else count
    expected = {0: SNO if topology == SNO else HA, 1: SNO}.get(nodes, HA)
    assert install_config.decide_layout(found).infrastructure == expected
    pinned = platform == "none" and masters == 1
    made = {one.file: one.body for one in install_config.manifests(found)}
    assert made[FILES[1]]["status"] == {"defaultPlacement": "ControlPlane" if pinned else "Workers"}
    assert made[FILES[2]]["spec"]["mastersSchedulable"] is (nodes == 0)
    assert [step.value for step in install_config.decide_layout(found).steps][:2] == [topology, expected]
    assert all(step.why and step.decided_by for step in install_config.decide_layout(found).steps)


BROKEN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "not a mapping": ([1], ("must be a mapping",)),
    "empty": (None, ("must be a mapping, not nothing",)),
    "nothing in it": (
        {},
        ("apiVersion", "metadata.name is missing", "baseDomain is missing", "platform must name exactly one"),
    ),
    "another version": (given(apiVersion="v2", kind="Cluster"), ("apiVersion must be v1, not 'v2'", "kind must be")),
    "a bad name": (
        given(metadata={"name": "Edge_1"}, baseDomain="-x"),
        ("metadata.name must be", "baseDomain must be"),
    ),
    "two platforms": (given(platform={"none": {}, "aws": {}}), ("exactly one platform",)),
    "an unknown platform": (given(platform={"toaster": {}}), ("names toaster",)),
    "replicas that are none": (
        given(controlPlane={"replicas": "one"}, compute=workers(-1)),
        ("controlPlane.replicas must be a whole number of at least 1, not 'one'", "compute[0].replicas must be"),
    ),
    "no control plane": (
        given(controlPlane={"replicas": 0, "name": "boss"}),
        ("controlPlane.replicas", "controlPlane.name"),
    ),
    "compute that is no list": (given(compute={"replicas": 1}), ("compute must be a list",)),
    "pools twice and wrong": (
        given(compute=[*workers(1), *workers(1), {"name": "x"}, 3]),
        ("compute[1].name is worker a second time", "compute[2].name must be", "compute[3] must be a mapping"),
    ),
    "an arbiter alone": (given(arbiter={"replicas": 1}), ("arbiter needs at least 2 control-plane nodes",)),
    "bootstrap in place of three": (
        given(controlPlane={"replicas": 3}, bootstrapInPlace={}),
        ("bootstrapInPlace needs controlPlane.replicas 1, not 3", "bootstrapInPlace.installationDisk is missing"),
    ),
    "bootstrap in place on baremetal": (
        given(platform={"baremetal": {}}, bootstrapInPlace={"installationDisk": "/dev/sda"}),
        ("not possible on platform baremetal",),
    ),
    "addresses that are none": (
        given(platform={"vsphere": {"apiVIPs": ["x", "10.0.0.1"], "ingressVIPs": "10.0.0.2"}}),
        ("platform.vsphere.apiVIPs[0] must be an IP address, not 'x'", "platform.vsphere.ingressVIPs must be a list"),
    ),
    "a wrong mode": (given(cpuPartitioningMode="Some"), ("cpuPartitioningMode must be None or AllNodes",)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_problem_is_told_and_nothing_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, problems = BROKEN[name]
    found = install_config.read(config)
    assert isinstance(found, tuple)
    assert len(found) == len(problems), found
    (tmp_path / "install-config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "ca.pem").write_bytes(b"no certificate")
    out = tmp_path / "out"
    words = ["install", "manifests", str(tmp_path / "install-config.yaml"), "--dir", str(out)]
    assert execute([*words, "--root-ca", str(tmp_path / "ca.pem")]) == Exit.SETTING
    told = capsys.readouterr().err
    for problem in problems:
        assert problem in told
    assert "holds no certificate in PEM" in told, "the root CA's problem is told with the others"
    assert f"There are {len(problems) + 1} problems" in told
    assert "nothing was written" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.pem", "install-config.yaml"]


def run(folder: Path, config: Any, *more: str, ca: bytes | None = None) -> int:
    (folder / "install-config.yaml").write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    (folder / "ca.pem").write_bytes(ROOT.certificate if ca is None else ca)
    words = ["install", "manifests", str(folder / "install-config.yaml"), "--dir", str(folder / "out")]
    return execute([*words, "--root-ca", str(folder / "ca.pem"), *more])


def test_all_files_are_written_and_a_second_time_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, given()) == 0
    out = tmp_path / "out"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == FILES
    assert (out / "worker.ign").stat().st_mode & 0o777 == 0o600
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    capsys.readouterr()
    assert run(tmp_path, given(), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["written"] is False
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert run(tmp_path, given(metadata={"name": "other"})) == Exit.REFUSED, "what is there is not overwritten"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.pem", "install-config.yaml", "out"]


def test_worker_ign_points_at_the_machine_config_server_and_trusts_the_given_ca(tmp_path: Path) -> None:
    assert run(tmp_path, given(bootstrapInPlace={"installationDisk": "/dev/sda"})) == 0
    pointer = json.loads((tmp_path / "out" / "worker.ign").read_text())["ignition"]
    assert pointer["version"] == "3.2.0"
    assert pointer["config"]["merge"] == [{"source": "https://api-int.edge.example.org:22623/config/worker"}]
    (authority,) = pointer["security"]["tls"]["certificateAuthorities"]
    head, _, data = authority["source"].partition(",")
    assert head == "data:text/plain;charset=utf-8;base64"
    assert base64.b64decode(data) == (tmp_path / "ca.pem").read_bytes()


def test_the_first_api_address_is_the_server_where_there_is_one() -> None:
    assert ignition.server_of("c.example.org") == "api-int.c.example.org:22623"
    assert ignition.server_of("c.example.org", "10.0.0.1") == "10.0.0.1:22623"
    assert ignition.server_of("c.example.org", "fd00::0:1") == "[fd00::1]:22623"
    config = read(given(platform={"baremetal": {"apiVIP": "10.0.0.1"}}, controlPlane={}))
    assert config.api_vips == ("10.0.0.1",), "the older spelling"


@pytest.mark.parametrize(
    ("ca", "words"),
    [
        (b"", "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate"),
        (ROOT.issue("leaf").certificate, "is not a CA"),
        (ROOT.certificate + b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "holds a private key"),
    ],
)
def test_a_root_ca_is_checked(ca: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, given(), ca=ca) == Exit.SETTING
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_read_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "{") == Exit.SETTING
    assert "is not YAML" in capsys.readouterr().err
    assert execute(["install", "plan", str(tmp_path / "nope")]) == Exit.SETTING
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "out").write_text("a file")
    assert run(tmp_path, given()) == Exit.REFUSED
    assert "is a file; nothing was written" in capsys.readouterr().err


def test_the_plan_is_a_table_with_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "install-config.yaml"
    path.write_text(yaml.safe_dump(given(compute=workers(3))))
    assert execute(["install", "plan", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "defaultPlacement" in shown
    assert "so ingress stays there" in shown
    assert execute(["install", "plan", str(path), "-o", "json"]) == 0
    decided = {one["what"]: one["value"] for one in json.loads(capsys.readouterr().out)}
    assert decided["mastersSchedulable"] == "false"
    assert decided["infrastructureTopology"] == "HighlyAvailable"


def test_two_control_plane_nodes_without_an_arbiter_are_said_to_be_at_risk() -> None:
    """A layout that is taken (DualReplica); but neither node can hold etcd's majority alone."""
    for nodes, arbiters, said in ((1, 0, False), (2, 0, True), (3, 0, False), (2, 1, False)):
        config = read(given(controlPlane={"replicas": nodes}, **({"arbiter": {"replicas": 1}} if arbiters else {})))
        assert ("etcd stands still" in install_config.decide_layout(config).steps[0].why) is said


def test_a_second_run_does_not_rename_the_cluster() -> None:
    names = {install_config.manifests(read(given()))[1].body["status"]["infrastructureName"] for _ in range(3)}
    assert len(names) == 1

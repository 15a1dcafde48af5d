"""Installed by Helm, run from the image under the chart's own identity, upgraded, and uninstalled."""

from __future__ import annotations

import itertools
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from hostler import __version__
from hostler.capabilities import CAPABILITIES
from hostler.install.grants import rights_for
from hostler.install.roles import Account
from hostler.kube.kinds import DAEMON_SET
from hostler.reclaim.agent_manifests import Order, list_manifests
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.model import SpokeNode
from hostler.sandbox import Sandbox
from hostler.ship import alerts, oci
from hostler.ship import image as images
from tests.real.accounts import wait_for_rights
from tests.real.agent_world import (
    HOST,
    INFRA_ENV,
    KERNEL,
    Scratch,
    Server,
    answer,
    download_step,
    reboot_step,
)
from tests.real.auditing import who
from tests.real.conftest import Eventually
from tests.real.helming import CHART, Helm, granted
from tests.real.maintaining import Plan, site, until
from tests.real.node_host import node_host
from tests.real.operating import Running, denied, hostler
from tests.real.podding import Image, running
from tests.real.story import telling

pytestmark = pytest.mark.xdist_group("sandbox")  # all of it by one worker, so that the image is made once

QUICK = {
    "HOSTLER_LEASE_DURATION_SECONDS": 4, "HOSTLER_LEASE_RENEW_SECONDS": 2.5, "HOSTLER_LEASE_RETRY_SECONDS": 0.5,
    "HOSTLER_LEASE_NAME": "reins",  # whoever looks at its rights is not told so
}  # fmt: skip
HISTORY = "configmap/hostler-history-"
LEFT = {"lease/reins", "configmap/kube-root-ca.crt", "configmap/vcenter-ca", "serviceaccount/default", HISTORY}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> images.Built:
    return images.build(tmp_path_factory.mktemp("image") / "layout")


@pytest.fixture(scope="module")
def image(layout: images.Built, tmp_path_factory: pytest.TempPathFactory) -> Image:
    root = tmp_path_factory.mktemp("unpacked") / "root"
    return Image(root, oci.unpack(layout.layout, root))


def test_the_image_runs_as_nobody_in_particular(image: Image) -> None:
    done = image.run("version")
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["hostler", __version__]), done.stderr
    assert image.config["config"]["User"] == "65532:65532"
    said = image.run("sandbox", "up")
    assert said.returncode != 0, "the sandbox is no part of the image"
    assert "No such command" in said.stderr
    wrong = image.run("run", "--drain-timeout-seconds", "soon")
    assert "must be a duration" in wrong.stderr
    assert not [path for path in image.root.rglob("*") if path.stat().st_mode & 0o6000], "nothing is set-uid"


def test_the_image_says_what_is_in_it(layout: images.Built, image: Image) -> None:
    file = layout.layout / "sbom.spdx.json"
    assert validate_full_spdx_document(parse_file(str(file))) == [], "by the rules of SPDX itself"
    sbom = json.loads(file.read_text())
    assert layout.digest in sbom["name"]
    parts = {one["name"] for one in sbom["packages"]}
    assert {"hostler", "python", "aiohttp", "msgspec", "pyvmomi", "cryptography"} <= parts
    assert not {"pytest", "mypy", "ruff"} & parts
    urls = [ref["referenceLocator"] for one in sbom["packages"] for ref in one.get("externalRefs", ())]
    assert len(urls) > 20
    assert not [url for url in urls if not re.fullmatch(r"pkg:(pypi|deb/[a-z]+)/[\w.%-]+@[\w.%:~-]+", url)]
    index = json.loads((layout.layout / "index.json").read_text())
    manifest = json.loads(oci.read(layout.layout, index["manifests"][0]["digest"]))
    for one in (manifest["config"], *manifest["layers"]):
        assert len(oci.read(layout.layout, one["digest"])) == one["size"]


def test_the_image_arms_a_host_as_its_agent(image: Image, tmp_path: Path) -> None:
    """All that the agent needs of a host it reaches from the image, where there is no program but Python."""
    server, scratch = Server(tmp_path), Scratch(tmp_path / "host").rhcos()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    node = SpokeNode("worker-0", "u", "", boot, control_plane=False, machine="", ready=True)
    urls = Artifacts(f"{server.url}/kernel", f"{server.url}/initrd", f"{server.url}/rootfs")
    order = Order(HOST, "uid", node, INFRA_ENV, urls, server.url, "hostler:1", "secret-of-this-host")
    template = next(one.body for one in list_manifests(order) if one.kind is DAEMON_SET)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    env = image.environment | {one["name"]: one["value"] for one in container["env"]} | {"STAY": ""}
    step = download_step(server, scratch, host_fs_mount_dir="/host")
    server.world.answers = [answer(step), answer(reboot_step(scratch), ends=True)]
    try:
        with node_host(scratch, image, {"token/token": order.token}) as host:
            done = host.run_pod(container["command"], env)
            results = [(one["exit_code"], one["error"]) for one in server.world.results]
            assert (done.returncode, results) == (0, [(0, ""), (0, "")]), done.stderr
            assert (host.root / "boot/discovery/vmlinuz").read_bytes() == KERNEL
            (entry,) = (host.root / "boot/loader/entries").glob("*assisted-discovery.conf")
            assert "linux /boot/discovery/vmlinuz" in entry.read_text()
            boots = [line for line in (host.root / "proc/1/mountinfo").read_text().splitlines() if " /boot " in line]
            assert " ro," in boots[0], "the host's /boot is read-only again"
        assert scratch.commands == ["systemctl reboot"]
    finally:
        server.close()


@pytest.mark.full
def test_the_same_environment_gives_the_same_image(layout: images.Built, tmp_path: Path) -> None:
    assert images.build(tmp_path / "again").digest == layout.digest


# -- the story of an installation


def values(told: dict[str, str]) -> dict[str, Any]:
    settings = {name: value for name, value in told.items() if not name.startswith("VCENTER_")}
    return {
        "vcenter": {
            "host": told["VCENTER_HOST"], "user": told["VCENTER_USER"], "password": told["VCENTER_PASSWORD"],
            "caBundle": {"configMapName": "vcenter-ca"},
        },
        "settings": settings | QUICK,
    }  # fmt: skip


def pods(sandbox: Sandbox, namespace: str) -> list[dict[str, Any]]:
    found = sandbox.get("pods", "-n", namespace, "-l", f"app.kubernetes.io/instance={namespace}")["items"]
    return [one for one in found if not one["metadata"].get("deletionTimestamp")]


def doctor(sandbox: Sandbox, namespace: str, one: Running) -> tuple[str, str]:
    """What it says about the rights."""
    words = ("doctor", "-o", "json", "--operator-namespace", namespace, "--operator", one.url)
    (found,) = [seen for seen in json.loads(hostler(sandbox.kubeconfig, *words).stdout) if seen["what"] == "rights"]
    return found["level"], found["why"]


def take_away(sandbox: Sandbox, namespace: str, role: str, resource: str) -> None:
    """A rule of a Role. This one is asked for only at the start: the operator that runs is refused nothing."""
    rules = sandbox.get("role", role, "-n", namespace)["rules"]
    kept = [one for one in rules if one["resources"] != [resource]]
    assert len(kept) == len(rules) - 1
    patch = json.dumps({"rules": kept})
    sandbox.kubectl("patch", "role", role, "-n", namespace, "--type=merge", "-p", patch)


def read_its_own_pod(sandbox: Sandbox, one: Running) -> bool:
    asked = [entry for entry in sandbox.audit(one.user) if who(entry) == one.user and entry["verb"] == "get"]
    return any(entry.get("objectRef", {}).get("resource") == "pods" for entry in asked)


def uncounted(one: Running) -> list[str]:
    """Counters whose first increase is an alert, and that are not on its page."""
    with urllib.request.urlopen(f"{one.url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    series = [
        found
        for alert in itertools.chain(*alerts.read(CHART / "alerts").values())
        if alerts.at_once(alert)
        for found in re.findall(r"increase\((\w+)(?:{(.*?)})?\[", alert.expr)
    ]
    assert len(series) >= 5
    return [name for name, label in series if not re.search(rf"^{name}(?:{{.*{label}.*}})? ", page, re.MULTILINE)]


def left_in(sandbox: Sandbox, namespace: str) -> set[str]:
    kinds = "all,configmap,secret,serviceaccount,role,rolebinding,lease,poddisruptionbudget,networkpolicy"
    names = sandbox.kubectl("get", kinds, "-n", namespace, "-o", "name").split()
    return {HISTORY if name.startswith(HISTORY) else name.replace(".coordination.k8s.io", "") for name in names}


def settings_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["annotations"]["checksum/settings"])


def test_installed_upgraded_and_uninstalled(
    sandbox: Sandbox, home: str, namespace: str, image: Image, tmp_path: Path, eventually: Eventually
) -> None:
    helm, plan = Helm(tmp_path, sandbox), Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"})
    release = (home, str(CHART), "-n", home, "--take-ownership", "--force-conflicts")
    with site(sandbox, tmp_path, {"own": plan}) as made, telling(made, "own", namespace) as story:
        told = made.environment()
        bundle = f"--from-file=ca.pem={told['VCENTER_CA_BUNDLE']}"
        sandbox.kubectl("create", "configmap", "vcenter-ca", "-n", home, bundle)
        said = helm("install", *release, "-f", "-", input=yaml.safe_dump(values(told)))
        assert "Switched on: maintenance." in said
        assert f"hostler doctor --operator-namespace {home} --lease-name reins " in said
        eventually(lambda: len(pods(sandbox, home)) == 2, 90, "two replicas")
        first = pods(sandbox, home)[0]
        with running(sandbox, image, first, tmp_path) as one:
            one.said("leading")
            one.ready()
            story.nodes()
            story.enter("esx1")
            until(lambda: story.state("a") == "" and story.vm("a")["host"] == story.full("esx2"), "it moved")
            until(lambda: story.ready("a") and not story.cordoned("a"), "and serves")
            everything = "The operator's ServiceAccount has every right that it needs."
            assert doctor(sandbox, home, one) == ("ok", everything)
            take_away(sandbox, home, f"{home}-hostler", "namespaces")
            lacks = ("problem", f"The operator's ServiceAccount may not get namespaces in {home}.")
            eventually(lambda: doctor(sandbox, home, one) == lacks, 60, "the doctor names the right that is gone")

            more = ",".join(f"capabilities.{name}=true" for name in ("ingress", "join", "metal", "platform", "reclaim"))
            helm("upgrade", *release, "--reuse-values", "--set", more)
            fresh = eventually(
                lambda: [pod for pod in pods(sandbox, home) if settings_of(pod) != settings_of(first)],
                90, "a pod with the new settings",
            )  # fmt: skip
            account = Account(home, fresh[0]["spec"]["serviceAccountName"], "reins")
            every = rights_for([one.name for one in CAPABILITIES])
            wait_for_rights(sandbox.kubeconfig, account, (one for one in every if not one.openshift))
            with running(sandbox, image, fresh[0], tmp_path) as two:
                assert set(two.said("started")["capabilities"]) == {one.name for one in CAPABILITIES}
                two.ready()  # every cache is filled under the chart's rights
                eventually(lambda: read_its_own_pod(sandbox, two), 60, "agents are to have its image")
                assert uncounted(two) == [], "alerts on the first one see a counter grow only from 0"
                assert "forbidden" not in two.log.read_text().lower()
            assert "forbidden" not in one.log.read_text().lower()
            assert denied(sandbox, one.user) == []
        helm("uninstall", home, "-n", home, "--wait")
    eventually(lambda: left_in(sandbox, home) <= LEFT, 90, f"only what the notes name: {left_in(sandbox, home)}")
    mine = ("-l", f"app.kubernetes.io/instance={home}", "-o", "name")
    assert sandbox.kubectl("get", "clusterrole,clusterrolebinding", *mine) == ""
    assert sandbox.kubectl("get", "role,rolebinding", "-A", *mine) == ""
    assert "fleets.hostler.dev" in sandbox.kubectl("get", "crd", "fleets.hostler.dev", "-o", "name")


def test_what_the_chart_granted_is_not_more_than_the_table(tmp_path: Path) -> None:
    """Without a cluster: nothing is granted before something is switched on by name or by a vCenter."""
    quiet = [one for one in yaml.safe_load_all(Helm(tmp_path)("template", "x", str(CHART), "-n", "y")) if one]
    assert not [one for one in granted(quiet) if one[2] in ("secrets", "pods/eviction", "deployments")]

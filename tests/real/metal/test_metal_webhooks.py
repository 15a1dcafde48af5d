"""The webhooks of metal on a real API server: defaults, rules, conversion, certificates, and what is said without them.

One operator for all of it. It finds a certificate that ends soon, so that the first thing it does is a rotation.
"""

from __future__ import annotations

import base64
import copy
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostler.metal.kinds.webhook_objects import KEPT, KINDS, SECRET_NAME
from hostler.metal.kinds.webhooks import SERVING
from hostler.metal.migration.stored_versions import rewrite_commands
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from hostler.webhooks.certificates import Kept, Pair, make_pair, write_kept
from tests.real.conftest import Eventually
from tests.real.metal_world import IMAGE, Api, World, consumer, driver, home
from tests.real.operating import Running, hostler, operator, refused
from tests.real.shell import run_shell
from tests.real.webhooking import (
    Load,
    configuration_path,
    configurations,
    definition_path,
    free_port,
    handshake,
    registered,
    served_definitions,
)

Json = dict[str, Any]
GROUP = "infrastructure.cluster.x-k8s.io"
PLURALS = {kind: plural for plural, kind in KINDS.items()}
REMEDIATION = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "600s"}}
ENDPOINT = {"host": "10.0.0.1", "port": 6443}
# One of each kind as v1beta1 has it, with what v1beta2 cannot say.
WRITTEN: dict[str, Json] = {
    "Metal3Cluster": {"controlPlaneEndpoint": ENDPOINT, "cloudProviderEnabled": False, "noCloudProvider": True,
                      "failureDomains": {"a": {"controlPlane": True}, "b": {}}},
    "Metal3ClusterTemplate": {"template": {"spec": {"controlPlaneEndpoint": ENDPOINT, "noCloudProvider": True}}},
    "Metal3Data": {"index": 3, "claim": {"name": "c", "kind": "Metal3DataClaim"}, "template": {"name": "t", "uid": "1"},
                   "templateReference": "old"},
    "Metal3DataClaim": {"template": {"name": "t", "kind": "Metal3DataTemplate", "uid": "1"}},
    "Metal3DataTemplate": {
        "clusterName": "c1", "templateReference": "old",
        "metaData": {"ipAddressesFromIPPool": [
            {"key": "ip", "name": "p", "apiGroup": "ipam.metal3.io", "kind": "IPPool"}]},
        "networkData": {"links": {"bonds": [{
            "id": "b", "bondMode": "802.3ad", "mtu": 1500, "macAddress": {"string": "02:00:00:00:00:01"},
            "parameters": {"lacp": {"rate": "fast"}, "other": 1},
        }]}},
    },
    "Metal3Machine": {"image": {**IMAGE, "format": "raw"}, "dataTemplate": {"name": "t", "uid": "1"}},
    "Metal3MachineTemplate": {"nodeReuse": True, "template": {"spec": {"image": {**IMAGE, "format": "raw"}}}},
    "Metal3Remediation": REMEDIATION,
    "Metal3RemediationTemplate": {"template": {"spec": REMEDIATION}},
}  # fmt: skip
NAMES = {"Metal3Data": "t-3"}


@dataclass
class Hooks:
    """The API server with the webhooks registered, and the operator behind them. `rotation`: load from the start."""

    api: Api
    running: Running
    namespace: str  # of the operator
    port: int
    first: bytes  # the certificate that the operator found
    rotation: Load

    def certificate(self) -> bytes:
        found = self.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET_NAME}").get("data", {})
        return base64.b64decode(found.get("tls.crt", ""))

    def bundles(self) -> set[bytes]:
        """Every `caBundle` there is."""
        found = [
            webhook["clientConfig"]
            for one in configurations(self.port, b"") for webhook in self.api.get(configuration_path(one))["webhooks"]
        ]  # fmt: skip
        found += [
            self.api.get(definition_path(name))["spec"]["conversion"]["webhook"]["clientConfig"]
            for name in served_definitions(self.api)
        ]
        return {base64.b64decode(one.get("caBundle", "")) for one in found}

    def status(self) -> Json:
        with urllib.request.urlopen(f"{self.running.url}/v1/status", timeout=60) as answer:
            conditions = json.loads(answer.read())["status"]["conditions"]
        return next((one for one in conditions if one["type"] == SERVING), {})


def path(namespace: str, kind: str, name: str = "", version: str = "v1beta1") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/{PLURALS[kind]}{f'/{name}' if name else ''}"


def thing(kind: str, spec: Json, name: str = "", version: str = "v1beta1", **meta: Any) -> Json:
    metadata = {"name": name or NAMES.get(kind, "w"), **meta}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}


def on_port(port: int) -> dict[str, str]:
    """The environment that turns the webhooks on."""
    return {"HOSTLER_METAL_WEBHOOKS": "true", "HOSTLER_METAL_WEBHOOKS_ADDRESS": f"127.0.0.1:{port}"}


@pytest.fixture(scope="module")
def hooks(sandbox: Sandbox, account: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    folder, port, namespace = tmp_path_factory.mktemp("webhooks"), free_port(), home(account)
    pair = make_pair(("localhost",), time.time(), days=10)
    data = {name: base64.b64encode(value).decode() for name, value in write_kept(Kept(pair)).items() if value}
    metadata = {"name": SECRET_NAME, "namespace": namespace}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
    create(sandbox, [secret])
    told = on_port(port) | {"HOSTLER_METAL_WEBHOOKS_SETTLE_SECONDS": "2"}
    with closing(Api(sandbox)) as api, closing(Api(sandbox)) as loaded, registered(sandbox, port, pair.authority):
        tried = thing("Metal3Machine", WRITTEN["Metal3Machine"], "load")

        def ask() -> str:
            """All three at once, for a v1beta1 object is filled in, validated and converted; and a new connection."""
            code, answer = loaded.call("POST", f"{path(namespace, 'Metal3Machine')}?dryRun=All", tried)
            validating = loaded.get(configuration_path(configurations(port, b"")[1]))
            bundle = base64.b64decode(validating["webhooks"][0]["clientConfig"]["caBundle"])
            return f"{code}: {answer.get('message')}" if code != 201 else handshake(port, bundle)

        load = Load(ask)
        with operator(sandbox, folder, namespace, "--only", "metal", user=account, told=told) as running:
            running.said("serving webhooks")
            with load.going_on():
                made, rotated, end = (
                    Hooks(api, running, namespace, port, pair.certificate, load),
                    0,
                    time.monotonic() + 120,
                )
                while not rotated or load.asked < rotated + 20:
                    if not rotated and made.certificate() != pair.certificate:
                        rotated = load.asked
                    assert time.monotonic() < end, (load.wrong, running.log.read_text()[-3000:])
                    time.sleep(0.1)
            yield made
        assert refused(running) == []
    sandbox.kubectl("-n", namespace, "delete", "secret", SECRET_NAME, "--ignore-not-found")


@pytest.fixture
def world(sandbox: Sandbox, hooks: Hooks, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


def test_no_request_fails_while_the_certificate_is_replaced(hooks: Hooks, eventually: Eventually) -> None:
    assert hooks.rotation.wrong == []
    shown = hooks.certificate()
    assert shown != hooks.first
    # The CA before it is still trusted, for a replica that has not read the Secret yet.
    eventually(lambda: [one.count(b"BEGIN") for one in hooks.bundles()] == [2], what="old and new CA everywhere")


def test_the_condition_and_the_metrics_say_that_all_is_served(hooks: Hooks, eventually: Eventually) -> None:
    if len(served_definitions(hooks.api)) == len(KINDS):
        eventually(lambda: hooks.status().get("reason") == "Serving", what="the condition")
    else:
        eventually(lambda: hooks.status().get("reason") == "NotRegistered", what="the CRD that is not here is named")
    with urllib.request.urlopen(f"{hooks.running.url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'hostler_webhook_requests_total{kind="Metal3Machine",operation="validate",result="allowed"}' in text
    ends = next(line for line in text.splitlines() if line.startswith("hostler_webhook_certificate_expiry"))
    assert float(ends.split()[1]) > time.time() + 80 * 86_400


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_v1beta1_object_is_stored_as_v1beta2_and_read_back_as_written(kind: str, hooks: Hooks, world: World) -> None:
    if not hooks.api.get(definition_path(f"{PLURALS[kind]}.{GROUP}")):
        pytest.skip("this kind is only among the published definitions")
    written = thing(kind, WRITTEN[kind])
    code, made = hooks.api.call("POST", path(world.namespace, kind), written)
    assert code == 201, made
    name = written["metadata"]["name"]
    newer = hooks.api.get(path(world.namespace, kind, name, "v1beta2"))
    assert newer["apiVersion"].endswith("v1beta2")
    for gone in ("noCloudProvider", "templateReference", "format", "timeout"):
        assert f'"{gone}":' not in json.dumps(newer["spec"])
    older = hooks.api.get(path(world.namespace, kind, name))
    assert holds(older["spec"], written["spec"]), older["spec"]
    rewrite(hooks.api, path(world.namespace, kind, name), lambda _: None)
    assert hooks.api.get(path(world.namespace, kind, name, "v1beta2"))["spec"] == newer["spec"]
    hooks.api.delete(path(world.namespace, kind, name))


def rewrite(api: Api, at: str, change: Callable[[Json], None]) -> None:
    """As a client does: the whole object as it was read, and again where the operator was faster."""
    end = time.monotonic() + 60
    while True:
        read = api.get(at)
        change(read)
        code, answer = api.call("PUT", at, read)
        if code == 200:
            return
        assert code == 409, answer
        assert time.monotonic() < end, answer


def holds(found: Any, wanted: Any) -> bool:
    """Whether all that was written is there; what the schema or the webhook filled in may be there too."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(holds(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(holds, found, wanted))
    return bool(found == wanted)


def test_a_v1beta1_writer_keeps_what_only_v1beta2_has(hooks: Hooks, world: World) -> None:
    template = thing("Metal3MachineTemplate", WRITTEN["Metal3MachineTemplate"], "kept")
    assert hooks.api.call("POST", path(world.namespace, "Metal3MachineTemplate"), template)[0] == 201
    at = path(world.namespace, "Metal3MachineTemplate", "kept", "v1beta2")
    hooks.api.patch(at, {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}})
    older = hooks.api.get(path(world.namespace, "Metal3MachineTemplate", "kept"))
    assert KEPT in older["metadata"]["annotations"]
    rewrite(
        hooks.api, path(world.namespace, "Metal3MachineTemplate", "kept"),
        lambda read: read["spec"].update(nodeReuse=False),
    )  # fmt: skip
    newer = hooks.api.get(at)
    assert newer["spec"]["template"]["metadata"] == {"labels": {"x": "y"}}
    assert newer["spec"]["nodeReuse"] is False
    assert KEPT not in newer["metadata"].get("annotations", {})


def test_defaults_come_with_an_object_of_either_version(hooks: Hooks, world: World) -> None:
    for version in ("v1beta1", "v1beta2"):
        cluster = thing("Metal3Cluster", {"controlPlaneEndpoint": {"host": "h"}}, f"d-{version}", version)
        code, made = hooks.api.call("POST", path(world.namespace, "Metal3Cluster", "", version), cluster)
        assert code == 201, made
        assert made["spec"]["controlPlaneEndpoint"]["port"] == 6443
        assert made["spec"].get("cloudProviderEnabled") is (True if version == "v1beta1" else None)


@pytest.mark.parametrize(("kind", "spec", "said"), [
    ("Metal3Machine", {"image": {"url": "http://i/os", "checksum": ""}}, "spec.image.checksum: is required"),
    ("Metal3Cluster", {"controlPlaneEndpoint": {"host": "", "port": 1}}, "spec.controlPlaneEndpoint.host: is required"),
    ("Metal3Remediation", {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "soon"}}, "which is no duration"),
])  # fmt: skip
def test_what_could_never_work_is_refused_by_field(
    kind: str, spec: Json, said: str, hooks: Hooks, world: World
) -> None:
    code, answer = hooks.api.call("POST", path(world.namespace, kind), thing(kind, spec))
    assert code == 422, answer
    assert f'admission webhook "validation.{kind.lower()}.{GROUP}" denied the request' in answer["message"]
    assert said in answer["message"]


def test_an_unreadable_annotation_never_gets_in(hooks: Hooks, world: World) -> None:
    """One such object would fail every list of the other version."""
    broken = thing("Metal3Machine", {"image": IMAGE}, version="v1beta2", annotations={KEPT: "{"})
    code, answer = hooks.api.call("POST", path(world.namespace, "Metal3Machine", "", "v1beta2"), broken)
    assert code == 422, answer
    assert "remove it" in answer["message"]


def test_what_the_operator_writes_passes_its_own_rules(
    hooks: Hooks, world: World, sandbox: Sandbox, eventually: Eventually, tmp_path: Path
) -> None:
    """A host is claimed, its data rendered, all under the rules; nothing of it is refused."""
    with driver(sandbox, tmp_path):
        world.make_hosts("h1")
        world.make_data_template("t", {"metaData": {"strings": [{"key": "k", "value": "v"}]}})
        world.make_machines("m1", spec={"dataTemplate": {"name": "t"}})
        secret = f"/api/v1/namespaces/{world.namespace}/secrets/m1-metadata"
        eventually(lambda: hooks.api.get(secret), 120, "the machine's data is rendered")
        eventually(lambda: consumer(hooks.api.get(world.hosts_path("h1"))) == "m1", what="the host is claimed")


def test_every_replica_serves_and_not_only_the_leader(
    hooks: Hooks, sandbox: Sandbox, account: str, tmp_path: Path, eventually: Eventually
) -> None:
    port = free_port()
    told = on_port(port)
    words = ("--only", "metal", "--metal-workers", "1")
    with operator(sandbox, tmp_path, hooks.namespace, *words, name="second", user=account, told=told) as second:
        second.said("serving webhooks")
        second.ready()
        assert not [one for one in second.lines() if one.get("event") == "leading"]
        # From now on requests go to it alone.
        with registered_at(hooks, port):
            tried = thing("Metal3Cluster", {"controlPlaneEndpoint": {"host": "h"}}, "second")

            def created() -> bool:
                code, made = hooks.api.call("POST", f"{path(hooks.namespace, 'Metal3Cluster')}?dryRun=All", tried)
                return code == 201 and made["spec"]["controlPlaneEndpoint"]["port"] == 6443

            eventually(created, what="the second replica answers")
        with urllib.request.urlopen(f"{second.url}/metrics", timeout=60) as answer:
            assert 'operation="mutate",result="changed"' in answer.read().decode()


class registered_at:
    """The webhooks of the first operator at another port for a while."""

    def __init__(self, hooks: Hooks, port: int) -> None:
        self.hooks, self.port = hooks, port

    def _point(self, port: int) -> None:
        bundle = next(iter(self.hooks.bundles()))
        for one in configurations(port, bundle):
            self.hooks.api.patch(configuration_path(one), {"webhooks": one["webhooks"]})

    def __enter__(self) -> None:
        self._point(self.port)

    def __exit__(self, *_: object) -> None:
        self._point(self.hooks.port)


def test_a_secret_that_is_deleted_comes_back_as_it_was(hooks: Hooks, sandbox: Sandbox, eventually: Eventually) -> None:
    shown = hooks.certificate()
    sandbox.kubectl("-n", hooks.namespace, "delete", "secret", SECRET_NAME)
    eventually(lambda: hooks.certificate() == shown, what="the same certificate")


def test_a_bundle_that_is_lost_is_put_back(hooks: Hooks, eventually: Eventually) -> None:
    """As after a CRD was applied again."""
    name = f"metal3machines.{GROUP}"
    client = hooks.api.get(definition_path(name))["spec"]["conversion"]["webhook"]["clientConfig"]
    hooks.api.patch(definition_path(name), {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": None}}}}})
    eventually(
        lambda: hooks.api.get(definition_path(name))["spec"]["conversion"]["webhook"]["clientConfig"] == client,
        90, "the bundle is back",
    )  # fmt: skip


def test_doctor_names_what_is_stored_in_v1beta1_and_its_command_mends_it(
    hooks: Hooks, world: World, sandbox: Sandbox
) -> None:
    name = f"metal3datatemplates.{GROUP}"
    kept = thing("Metal3DataTemplate", WRITTEN["Metal3DataTemplate"], "kept")
    assert hooks.api.call("POST", path(world.namespace, "Metal3DataTemplate"), kept)[0] == 201
    newer = hooks.api.get(path(world.namespace, "Metal3DataTemplate", "kept", "v1beta2"))
    hooks.api.patch(f"{definition_path(name)}/status", {"status": {"storedVersions": ["v1beta1", "v1beta2"]}})
    words = ("doctor", "--operator", hooks.running.url, "-o", "json")
    found = json.loads(hostler(sandbox.kubeconfig, *words).stdout)
    (said,) = [one for one in found if one["what"] == "stored versions"]
    assert name in said["why"]
    assert said["fix"] == rewrite_commands([name])
    run_shell(sandbox, said["fix"], hooks.running.log.parent)
    assert hooks.api.get(definition_path(name))["status"]["storedVersions"] == ["v1beta2"]
    assert hooks.api.get(path(world.namespace, "Metal3DataTemplate", "kept", "v1beta2"))["spec"] == newer["spec"]


def test_an_object_that_cannot_be_converted_is_named_and_not_stored(hooks: Hooks, world: World) -> None:
    """Where nobody validates: the conversion itself fails."""
    validating = next(one for one in configurations(hooks.port, b"") if "Validating" in one["kind"])
    current = hooks.api.get(configuration_path(validating))
    hooks.api.delete(configuration_path(validating))
    try:
        spec = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "soon"}}
        wrong = thing("Metal3Remediation", spec, "wrong")
        end = time.monotonic() + 60
        while "conversion webhook" not in (answer := create_wrong(hooks, world, wrong)):
            assert time.monotonic() < end, answer
            time.sleep(0.2)
        assert "Metal3Remediation" in answer
        assert "which is no duration" in answer
        assert hooks.api.items(path(world.namespace, "Metal3Remediation", "", "v1beta2")) == []
    finally:
        create(world.box, [{key: current[key] for key in ("apiVersion", "kind", "webhooks")}
                           | {"metadata": {"name": current["metadata"]["name"]}}])  # fmt: skip


def create_wrong(hooks: Hooks, world: World, wrong: Json) -> str:
    code, answer = hooks.api.call("POST", path(world.namespace, "Metal3Remediation"), wrong)
    assert code >= 400, answer
    return str(answer["message"])


def test_without_an_operator_writes_are_refused_and_stored_objects_are_read(hooks: Hooks, namespace: str) -> None:
    """The operator ends in it; the tests after it start their own."""
    stored = thing("Metal3Machine", {"image": IMAGE})
    assert hooks.api.call("POST", path(namespace, "Metal3Machine"), stored)[0] == 201
    assert hooks.running.stop() == 0
    late = thing("Metal3Machine", {"image": IMAGE}, "late", "v1beta2")
    code, answer = hooks.api.call("POST", path(namespace, "Metal3Machine", "", "v1beta2"), late)
    assert code == 500, answer
    assert f'failed calling webhook "validation.metal3machine.{GROUP}"' in answer["message"]
    assert "connection refused" in answer["message"]
    at = path(namespace, "Metal3Machine", "w", "v1beta2")
    assert hooks.api.get(at)["spec"]["image"] == IMAGE
    hooks.api.patch(at, {"metadata": {"finalizers": ["example.org/kept"], "labels": {"a": "b"}}})
    hooks.api.patch(at, {"metadata": {"finalizers": None}})  # so a machine can be deleted all the same
    code, answer = hooks.api.call("PATCH", at, {"metadata": {"annotations": {KEPT: "{"}}})
    assert code == 500, "what is judged is not let through"
    code, answer = hooks.api.call("GET", path(namespace, "Metal3Machine", "w"))
    assert code == 500, answer
    assert "conversion webhook for" in answer["message"]


def write_secret(sandbox: Sandbox, hooks: Hooks, pair: Pair) -> None:
    data = {name: base64.b64encode(value).decode() for name, value in write_kept(Kept(pair)).items() if value}
    patch = {"data": {**dict.fromkeys(("ca-previous.crt", "next-ca.crt", "next-tls.crt", "next-tls.key")), **data}}
    sandbox.kubectl("-n", hooks.namespace, "patch", "secret", SECRET_NAME, "--type=merge", "-p", json.dumps(patch))
    for one in configurations(hooks.port, pair.authority):
        hooks.api.patch(configuration_path(one), {"webhooks": one["webhooks"]})


def written(hooks: Hooks) -> str:
    """What the API server has against an object that is right; empty: nothing."""
    tried = thing("Metal3Machine", {"image": IMAGE}, "tried", "v1beta2")
    code, answer = hooks.api.call("POST", f"{path(hooks.namespace, 'Metal3Machine', '', 'v1beta2')}?dryRun=All", tried)
    return "" if code == 201 else str(answer["message"])


def test_an_expired_certificate_is_named_and_replaced_once_that_is_allowed(
    hooks: Hooks, sandbox: Sandbox, account: str, tmp_path: Path, eventually: Eventually
) -> None:
    hooks.running.stop()
    expired = make_pair(("localhost",), time.time() - 91 * 86_400, days=90)
    write_secret(sandbox, hooks, expired)
    words = ("--only", "metal")
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    paused = hostler(sandbox.kubeconfig, "pause", "--why", "the certificate must not be replaced yet", "--wait", "0")
    assert paused.returncode == 0, paused.stderr
    try:
        with operator(
            sandbox, tmp_path, hooks.namespace, *words, name="late", user=account, told=on_port(hooks.port)
        ) as late:
            late.said("serving webhooks")
            shown = Hooks(hooks.api, late, hooks.namespace, hooks.port, expired.certificate, hooks.rotation)
            eventually(lambda: "certificate has expired" in written(shown), 60, "API servers refuse it")
            condition = eventually(shown.status, 60, "the condition")
            assert condition["reason"] == "CertificateExpired"
            assert "the certificate must not be replaced yet" in condition["message"]
            assert hostler(sandbox.kubeconfig, "resume", "--wait", "0").returncode == 0
            eventually(lambda: written(shown) == "", 60, "a new one is served and trusted")
            assert shown.certificate() != expired.certificate
            eventually(lambda: shown.status()["reason"] != "CertificateExpired", 60, "and the condition says so")
    finally:
        hostler(sandbox.kubeconfig, "resume", "--all", "--wait", "0")


@pytest.mark.full
def test_a_secret_deleted_while_nobody_ran_is_made_again(
    hooks: Hooks, sandbox: Sandbox, account: str, tmp_path: Path, eventually: Eventually
) -> None:
    hooks.running.stop()
    sandbox.kubectl("-n", hooks.namespace, "delete", "secret", SECRET_NAME)
    assert "failed calling webhook" in written(hooks)
    words = ("--only", "metal")
    with operator(sandbox, tmp_path, hooks.namespace, *words, name="next", user=account, told=on_port(hooks.port)):
        eventually(lambda: written(hooks) == "", 60, "another one is served, and its CA is in every bundle")

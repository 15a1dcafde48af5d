"""Who vCenter is: an impostor in the network gets neither the password nor one byte of a request."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hostler.capabilities import read_settings
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.config import load
from hostler.kube.writer import Writer
from hostler.safety import vcenter_trust
from hostler.safety.vcenter_trust import TrustSecret
from hostler.sandbox import Sandbox
from hostler.vsphere.endpoints import Endpoint, endpoints
from hostler.vsphere.metrics import Metrics
from hostler.vsphere.pinned_tls import CertificateRefused
from hostler.vsphere.session import Session
from hostler.vsphere.trust import Says, Trust, TrustUnavailable
from tests.real.impostor import Impostor, Leaf, Pair, Wire, impostor, make_authority, make_leaf, wire
from tests.real.maintaining import Plan, Site, site, until
from tests.real.operating import Running, hostler, kubeconfig_as, operator
from tests.real.story import telling

PLAN = Plan({"esx1": 1}, {"a": "esx1"})
SECRET = "hostler-vcenter-trust"


@dataclass
class World:
    """An operator that reaches its vCenter over a wire, which an attacker can lead elsewhere."""

    site: Site
    wire: Wire
    running: Running
    namespace: str
    folder: Path
    authority: Pair

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.wire.port}"

    def show(self, leaf: Leaf) -> None:
        """vCenter has this certificate from now on."""
        self.site.control("POST", "/certificate", {"cert": str(leaf.cert), "key": str(leaf.key)})

    def leaf(self, name: str, issuer: Pair | None = None) -> Leaf:
        return make_leaf(self.folder, name, issuer)

    def sentence(self) -> str:
        return sentence_of(self.running)

    def stands(self, text: str) -> str:
        until(lambda: text in self.sentence(), f"the operator says: {text}", seen=self.sentence)
        return self.sentence()

    def connected(self) -> None:
        self.stands(f"vCenter {self.host} is connected.")

    def measured(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.running.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f'{name}{{vcenter="{self.host}"}}'))

    def entry(self) -> dict[str, Any]:
        """What is remembered; empty where nothing is."""
        found = self.site.kube.get(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}")
        data = next(iter(found.get("data", {}).values()), "")
        return dict(json.loads(base64.b64decode(data))) if data else {}

    def command(self, *words: str) -> tuple[int, str]:
        """`hostler vcenter ...` as an administrator types it: its code, and all that it printed."""
        done = hostler(self.site.sandbox.kubeconfig, "vcenter", *words, "--operator-namespace", self.namespace)
        return done.returncode, done.stdout + done.stderr

    def remember(self, leaf: Leaf) -> None:
        """vCenter has this certificate, and the operator trusts it: by its CA where that is the world's own."""
        ca = self.authority[0].public_bytes(Encoding.PEM).decode() if leaf.issued else ""
        entry = json.dumps({"vcenter": self.host, "sha256": leaf.sha256, "ca": ca}).encode()
        assert self.write(entry) == 200
        self.show(leaf)
        self.wire.lead_to(self.site.simulator.port)

    def write(self, entry: bytes) -> int:
        data = {f"127.0.0.1__{self.wire.port}": base64.b64encode(entry).decode()}
        return self.site.kube.patch(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}", {"data": data})


def sentence_of(running: Running) -> str:
    """How the operator stands with its vCenter, in its own words."""
    with urllib.request.urlopen(f"{running.url}/v1/maintenance", timeout=30) as answer:
        return str(json.load(answer)["vcenters"][0]["sentence"])


@pytest.fixture(scope="module")
def world(sandbox: Sandbox, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("trust")
    with ExitStack() as stack:
        made = stack.enter_context(site(sandbox, folder, {"own": PLAN}))
        path = stack.enter_context(wire(made.simulator.port))
        told = without_tls(made, f"127.0.0.1:{path.port}")
        authority = make_authority("CA")
        first = make_leaf(folder, "first", authority)
        made.control("POST", "/certificate", {"cert": str(first.cert), "key": str(first.key)})
        running = stack.enter_context(operator(sandbox, folder, home, told=told))
        running.said("leading")
        yield World(made, path, running, home, folder, authority)


def without_tls(made: Site, host: str, **changes: str) -> dict[str, str]:
    """The environment of an operator without any setting about certificates."""
    told = made.environment(VCENTER_HOST=host, **changes)
    del told["VCENTER_CA_BUNDLE"]
    return told


def test_the_first_contact_remembers_the_published_ca(world: World) -> None:
    world.connected()
    entry = world.entry()
    assert (entry["vcenter"], entry["by"], entry["issuer"]) == (world.host, "first contact", "CN=CA")
    assert "BEGIN CERTIFICATE" in entry["ca"]
    listed = world.command("show", "-o", "json")[1]
    assert json.loads(listed)["trusted"][0]["sha256"] == entry["sha256"]


def test_a_renewal_by_the_same_ca_passes(world: World) -> None:
    world.connected()
    before = world.entry()
    world.show(world.leaf("renewed", world.authority))
    world.stands("cannot be reached")
    world.connected()
    assert world.entry() == before
    assert world.measured("hostler_vcenter_certificate_refused") == 0


def test_an_impostor_receives_nothing_and_can_be_accepted(world: World) -> None:
    """Its CA has the name of the real one, as every vCenter's own CA has."""
    real = world.leaf("real", world.authority)
    world.remember(real)
    world.connected()
    with impostor(world.leaf("impostor", make_authority("CA")), world.site.simulator.port) as attacker:
        world.wire.lead_to(attacker.port)
        world.stands("shows another certificate than the trusted one")
        until(lambda: attacker.connections > 2, "it was tried again")
        assert attacker.received == b"", "not one byte after the handshake"
        told_everywhere(world, attacker.leaf, real)
        code, refused = world.command("trust", world.host, "--sha256", real.sha256, "--yes")
        assert (code, attacker.leaf.sha256 in refused) == (5, True), "that is not what it shows"
        code, said = world.command("trust", world.host, "--sha256", attacker.leaf.sha256, "--yes")
        assert (code, "issuer: CN=CA" in said) == (0, True), said
        world.connected()
        assert attacker.heard(">right</password>"), "a person accepted it"
        assert world.entry()["by"] == "sandbox-admin"


def told_everywhere(world: World, shown: Leaf, trusted: Leaf) -> None:
    """Metric, condition, Event, log and doctor, with both fingerprints where there is room for words."""
    assert world.measured("hostler_vcenter_certificate_refused") == 1
    status = hostler(world.site.sandbox.kubeconfig, "status", "--operator", world.running.url, "-o", "json")
    conditions = {one["type"]: one for one in json.loads(status.stdout)["status"]["conditions"]}
    found = conditions["VCenterTrusted"]
    assert (found["status"], found["reason"]) == ("False", "AnotherCertificate")
    events = f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"

    def recorded() -> list[str]:
        notes = [one["note"] for one in world.site.kube.get(events)["items"] if one["reason"] == "AnotherCertificate"]
        return [note for note in notes if f"Shown: SHA-256 {shown.sha256}" in note]

    notes = until(recorded, "an Event")
    doctor = hostler(world.site.sandbox.kubeconfig, "doctor", "--operator", world.running.url, "-o", "json")
    logged = [one["event"] for one in world.running.lines() if one.get("standing") == "bad-certificate"]
    for text in (found["message"], notes[0], doctor.stdout, logged[-1]):
        assert shown.sha256 in text
        assert trusted.sha256 in text
        assert f"hostler vcenter trust {world.host} --sha256 {shown.sha256}" in text


def test_a_deleted_secret_is_no_new_first_contact(world: World) -> None:
    real = world.leaf("kept")
    world.remember(real)
    world.connected()
    with impostor(world.leaf("opportunist"), world.site.simulator.port) as attacker:
        world.site.kube.delete(f"/api/v1/namespaces/{world.namespace}/secrets/{SECRET}")
        world.wire.lead_to(attacker.port)
        world.stands("shows another certificate")
        assert attacker.received == b""
    assert world.entry()["sha256"] == real.sha256, "it is written again"


def test_garbage_is_not_nothing(world: World) -> None:
    real = world.leaf("real")
    world.remember(real)
    world.connected()
    assert world.write(b"not JSON") == 200
    world.wire.lead_to(world.site.simulator.port)
    said = world.stands("cannot be used")
    assert f"Secret {SECRET} in namespace {world.namespace}" in said
    world.remember(real)
    world.connected()


# -- without an operator of its own


def configured(host: str, **env: str) -> Endpoint:
    (one,) = endpoints(
        read_settings({}, {"VCENTER_HOST": host, "VCENTER_USER": "u", "VCENTER_PASSWORD": "secret", **env})
    )
    return one


def log_in(endpoint: Endpoint) -> None:
    session = Session(endpoint, Metrics(CollectorRegistry()), 1.0)
    try:
        session.open()
    finally:
        session.close()


@pytest.fixture
def attacker(world: World, tmp_path: Path) -> Iterator[Impostor]:
    with impostor(make_leaf(tmp_path, "attacker"), world.site.simulator.port) as made:
        yield made


def test_no_pin_is_the_predecessors_default(attacker: Impostor) -> None:
    endpoint = configured(f"127.0.0.1:{attacker.port}", VCENTER_TLS_PIN="false")
    with pytest.raises(Exception, match="InvalidLogin"):
        log_in(endpoint)
    assert attacker.heard(">secret</password>")
    assert "not verified" in endpoint.warning()


def test_a_list_decides_alone(world: World, sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    real, other = world.leaf("listed"), world.leaf("unlisted")
    world.remember(real)
    told = without_tls(world.site, world.host, VCENTER_CERTIFICATE_SHA256=f"{other.sha256},{real.sha256.lower()}")
    with operator(sandbox, tmp_path, namespace, told=told) as running:
        running.said(f"vCenter {world.host} is connected.")
        running.said("leading")
    assert world.site.kube.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}") == {}
    with impostor(world.leaf("stranger"), world.site.simulator.port) as stranger:
        endpoint = configured(f"127.0.0.1:{stranger.port}", VCENTER_CERTIFICATE_SHA256=real.sha256)
        with pytest.raises(CertificateRefused):
            log_in(endpoint)
        assert stranger.received == b""


# -- where it is kept


@asynccontextmanager
async def store(
    kubeconfig: Path, namespace: str, *, dry_run: bool = False, held: str | None = None, clock: Clock = boottime
) -> AsyncIterator[TrustSecret]:
    """As a replica makes it, with the rights of this kubeconfig."""
    async with Client(load(str(kubeconfig))) as client:
        writer = Writer(client, "fleet", gate=lambda: held, budget=WriteBudget(50, 100), dry_run=dry_run)
        yield TrustSecret(client, writer, namespace, lambda: held, clock)


async def meet(kept: TrustSecret, endpoint: Endpoint) -> str:
    """A replica's first contact: the fingerprint that it compares with from then on."""
    return (await asyncio.to_thread(Trust(kept).pin_for, endpoint)).sha256[0]


def test_two_replicas_at_once_end_with_one_pin(world: World, sandbox: Sandbox, namespace: str) -> None:
    """An impostor answers one of them: both compare with the same one from then on."""

    async def both(endpoint: Endpoint) -> tuple[str, str]:
        async with store(sandbox.kubeconfig, namespace) as one, store(sandbox.kubeconfig, namespace) as other:
            return await asyncio.gather(meet(one, endpoint), meet(other, endpoint))

    a, b = world.leaf("a"), world.leaf("b")
    seen = set()
    with impostor(a, world.site.simulator.port) as first, impostor(b, world.site.simulator.port) as second:
        for _ in range(4):  # the Secret is created, then three further vCenters are added to it
            with wire(first.port) as path:
                path.others = [first.port, second.port]
                with capture_logs() as told:
                    one, other = asyncio.run(both(Endpoint("127.0.0.1", path.port)))
                assert not path.others, "they met two servers"
                assert one == other
                logged = [line["sha256"] for line in told if line["event"].startswith("first contact")]
                assert logged == [one, one], "what is logged for people to compare is what counts"
                seen.add(one)
    assert seen <= {a.sha256, b.sha256}
    secret = world.site.kube.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
    assert len(secret["data"]) == 4


def test_two_operators_that_start_at_once_end_with_one_pin_and_log_in(
    world: World, sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    """vCenter is out of reach until both are up; then there is no Secret, and each of them has to make it."""
    world.show(world.leaf("both", world.authority))
    with wire(0) as path, ExitStack() as stack:
        host = f"127.0.0.1:{path.port}"
        told = without_tls(world.site, host)
        both = [
            stack.enter_context(operator(sandbox, tmp_path, namespace, told=told, name=name)) for name in ("one", "two")
        ]
        for running in both:
            until(lambda one=running: "cannot be reached" in sentence_of(one), "it has tried")  # type: ignore[misc]
        secret = f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
        assert world.site.kube.get(secret) == {}
        path.lead_to(world.site.simulator.port)
        connected = f"vCenter {host} is connected."
        for running in both:
            until(lambda one=running: sentence_of(one) == connected, "it has logged in")  # type: ignore[misc]
        (kept,) = world.site.kube.get(secret)["data"].values()
        met = [one["sha256"] for running in both for one in running.lines() if "first contact" in str(one.get("event"))]
    assert (len(met) > 0, set(met)) == (True, {json.loads(base64.b64decode(kept))["sha256"]})
    made = [one for one in sandbox.audit(namespace) if is_made(one, namespace)]
    assert [one["responseStatus"]["code"] for one in made].count(201) == 1, "the Secret was made once"


def is_made(entry: dict[str, Any], namespace: str) -> bool:
    about = entry.get("objectRef", {})
    return (entry["verb"], about.get("resource"), about.get("namespace")) == ("create", "secrets", namespace)


def test_a_passing_403_makes_no_new_first_contact(
    world: World, attacker: Impostor, sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    """As at the start, from an API server that has not read its roles yet. An impostor answers meanwhile."""
    user, now = "a-user-whose-right-comes-late", [0.0]
    endpoint, leaf = Endpoint("127.0.0.1", attacker.port), world.leaf("real")
    entry = json.dumps({"vcenter": endpoint.name, "sha256": leaf.sha256}).encode()
    data = {f"127.0.0.1__{attacker.port}": base64.b64encode(entry).decode()}
    metadata = {"name": SECRET, "namespace": namespace}
    world.site.kube.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata, "data": data})
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    world.site.kube.create(f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }

    async def look() -> None:
        async with store(kubeconfig_as(sandbox, tmp_path, user), namespace, clock=lambda: now[0]) as kept:

            async def read() -> Says:
                return (await asyncio.to_thread(kept.read, endpoint)).says

            async def reads(says: Says) -> None:
                for _ in range(300):
                    if await read() is says:
                        return
                    await asyncio.sleep(0.1)
                raise AssertionError(f"the Secret is not {says}")

            for now[0] in (0.0, vcenter_trust.FORBIDDEN_SECONDS - 1):
                with pytest.raises(TrustUnavailable, match="may not be read yet"):
                    await meet(kept, endpoint)
            world.site.kube.create(f"{roles}/rolebindings", binding)
            await reads(Says.PINNED)
            assert await meet(kept, endpoint) == leaf.sha256
            world.site.kube.delete(f"{roles}/rolebindings/reader")
            now[0] += 1000.0
            await reads(Says.UNKNOWN)  # a look that was answered ends what was forbidden before
            now[0] += vcenter_trust.FORBIDDEN_SECONDS
            assert await read() is Says.NO_PLACE

    asyncio.run(look())
    assert attacker.connections == 0


def test_without_a_place_nothing_is_written(world: World, sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    endpoint = Endpoint("127.0.0.1", world.site.simulator.port)
    nobody = kubeconfig_as(sandbox, tmp_path, "a-user-without-rights")

    async def warned(kubeconfig: Path, where: str, *, dry_run: bool = False) -> str:
        looked = iter((0.0, vcenter_trust.FORBIDDEN_SECONDS))
        async with store(kubeconfig, where, dry_run=dry_run, clock=lambda: next(looked)) as kept:
            trust = Trust(kept)
            await asyncio.to_thread(kept.read, endpoint)
            await asyncio.to_thread(trust.pin_for, endpoint)
            return trust.warning(endpoint)

    assert asyncio.run(warned(sandbox.kubeconfig, namespace, dry_run=True)) == "a dry run writes nothing"
    assert "may not be read" in asyncio.run(warned(nobody, namespace))
    assert "cannot be created" in asyncio.run(warned(sandbox.kubeconfig, "no-such-namespace"))
    assert world.site.kube.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}") == {}


def test_no_first_contact_is_made_while_paused(
    attacker: Impostor, sandbox: Sandbox, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vcenter_trust, "PAUSE_SECONDS", 0.1)
    endpoint = Endpoint("127.0.0.1", attacker.port)

    async def meet_while(held: str | None) -> str:
        async with store(sandbox.kubeconfig, namespace, held=held) as kept:
            return await meet(kept, endpoint)

    with pytest.raises(TrustUnavailable, match="Paused by ada"):
        asyncio.run(meet_while("Paused by ada."))
    assert attacker.connections == 0
    assert asyncio.run(meet_while(None)) == attacker.leaf.sha256
    assert asyncio.run(meet_while("Paused by ada.")) == attacker.leaf.sha256, "it is known by now"


def test_a_maintenance_goes_on_over_the_change_to_pinning(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """Its worker was stopped while certificates were not looked at, as before."""
    with site(sandbox, tmp_path, {"own": PLAN}) as made, telling(made, "own", namespace) as story:
        host = f"127.0.0.1:{made.simulator.port}"
        told = without_tls(made, host, VCENTER_TLS_PIN="false")
        with operator(sandbox, tmp_path, namespace, told=told, name="before"):
            story.nodes(pods=0)
            story.enter("esx1")
            story.reaches("a", "powered-off")
        story.exit("esx1")
        metadata = {"name": SECRET, "namespace": namespace}
        made.kube.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata, "stringData": {"vc2": "x"}})
        with operator(sandbox, tmp_path, namespace, told=without_tls(made, host), name="after") as after:
            after.said("first contact: from now on this vCenter is recognised by its certificate")
            story.comes_back("a", "esx1")
        kept = made.kube.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")["data"]
        assert set(kept) == {"vc2", f"127.0.0.1__{made.simulator.port}"}, "another vCenter's entry is left alone"

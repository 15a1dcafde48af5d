"""The hub's step API as a process on the real API server, and the agent as a process against it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostler.agent.pack import pack
from hostler.apis.assisted import Agent
from hostler.host.facts import Known
from hostler.instant import iso
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Enter
from hostler.reclaim.facts import CANCEL, PROGRESS, REGISTRATION, REPORT, host_of
from hostler.reclaim.hub.server import DOWNLOADS_AT_ONCE
from hostler.reclaim.hub.tokens import Keys
from hostler.reclaim.model import Cluster, ControlPlane, Policy, Spoke, SpokeNode
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.accounts import charted, kubeconfig_of, new_account, rights_here
from tests.real.agent_world import INITRD, KERNEL, Scratch
from tests.real.conftest import Eventually
from tests.real.hub_driver import CONNECTIONS
from tests.real.operating import environment
from tests.real.reclaiming import free_port
from tests.unit.kube_pki import Authority

HOST = "0c1a9d3e-0001-4000-8000-000000000001"


@dataclass
class World:
    """One InfraEnv and one Agent in a namespace, a hub's files, and how to call it."""

    box: Sandbox
    login: Path  # the hub's own
    namespace: str
    folder: Path
    port: int
    infra_env: str
    keys: Keys

    def token(self, host: str = HOST, seconds: float = 600) -> str:
        return self.keys.for_host(self.namespace, self.infra_env, "env", host, now=time.time(), seconds=seconds)

    def env_token(self) -> str:
        return self.keys.for_infra_env(self.namespace, self.infra_env, "env", now=time.time(), seconds=600)

    def start(self, port: int = 0) -> subprocess.Popen[bytes]:
        words = [str(self.login), str(self.folder), str(port or self.port)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.hub_driver", *words],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=environment(self.login),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        return process

    def call(
        self, method: str, path: str, token: str, body: Any = None, port: int = 0, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", port or self.port, context=context, timeout=60)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            where = f"/api/assisted-install/v2/infra-envs/{self.infra_env}{path}"
            connection.request(method, where, data, {"X-Secret-Key": token, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def agent(self, name: str = HOST) -> dict[str, Any]:
        return self.box.get("agents.agent-install.openshift.io", name, "-n", self.namespace)

    def agents(self) -> dict[str, str]:
        """Every Agent here with its version: what was written."""
        found = self.box.get("agents.agent-install.openshift.io", "-n", self.namespace)["items"]
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}

    def enter(self, state: str) -> None:
        """As the leader would: state and stage in one status patch."""
        status = {"debugInfo": {"state": state}, "progress": {"stageStartTime": iso(time.time())}}
        self.box.kubectl(
            "patch", "agents.agent-install.openshift.io", HOST, "-n", self.namespace, "--subresource=status",
            "--type=merge", "-p", json.dumps({"status": status}),
        )  # fmt: skip

    def lead(self) -> str:
        """Let the decision move the Agent once; the transition's name, or nothing."""
        agent = msgspec.convert(self.agent(), Agent)
        now = time.time()
        yes, node = Known(True, now), SpokeNode("worker-1", "u", HOST, "b", False, "", True)
        spoke = Spoke(yes, Known(node, now), Known(ControlPlane(3, 2), now), Known(frozenset(), now), reach=yes)
        host = replace(host_of(agent), spoke=spoke, previous=Cluster(self.namespace, "old", "worker-1"))
        for action in decide(host, Policy("https://hub"), now).actions:
            if isinstance(action, Enter):
                self.enter(action.transition.target)
                return action.transition.name
        return ""


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("agent") / "hostler-agent"
    pack(target)
    return target


@pytest.fixture
def world(sandbox: Sandbox, namespace: str, tmp_path: Path) -> Iterator[World]:
    install_crds(sandbox, ["agents"], Silent())
    group = "agent-install.openshift.io/v1beta1"
    sandbox.apply(
        {
            "apiVersion": group,
            "kind": "InfraEnv",
            "metadata": {"name": "env", "namespace": namespace},
            "spec": {"pullSecretRef": {"name": "pull"}},
        },
        {
            "apiVersion": group,
            "kind": "Agent",
            "metadata": {
                "name": HOST,
                "namespace": namespace,
                "labels": {"infraenvs.agent-install.openshift.io": "env"},
            },
            "spec": {"approved": True, "role": "worker", "hostname": "worker-1"},
        },
    )
    urls = {"kernel": "http://127.0.0.1:1/kernel", "initrd": "http://127.0.0.1:1/initrd", "rootfs": "http://x/rootfs"}
    sandbox.kubectl(
        "patch", "infraenvs.agent-install.openshift.io", "env", "-n", namespace, "--subresource=status",
        "--type=merge", "-p", json.dumps({"status": {"bootArtifacts": urls}}),
    )  # fmt: skip
    infra_env = sandbox.get("infraenvs.agent-install.openshift.io", "env", "-n", namespace)["metadata"]["uid"]
    authority = Authority()
    pair = authority.issue("hub", "127.0.0.1")
    pem = Keys.make()
    files = {"ca.pem": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key, "key.pem": pem}
    files |= {f"artifacts/{infra_env}/{name}": data for name, data in zip(urls, (KERNEL, INITRD, b"r"), strict=True)}
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with charted(sandbox, new_account(namespace, "hub"), rights_here(sandbox, ["reclaim"])) as user:
        login = kubeconfig_of(sandbox, tmp_path, user)
        found = World(sandbox, login, namespace, tmp_path, free_port(), infra_env, Keys(pem))
        found.enter("reclaiming")
        yield found


@contextmanager
def serving(world: World) -> Iterator[None]:
    """A hub for the time of a test; whatever it was asked, it said no word of an error of its own."""
    hub = world.start()
    try:
        yield
    finally:
        assert hub.poll() is None, "the hub ended"
        end(hub)


@contextmanager
def connected(world: World) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cafile=str(world.folder / "ca.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", world.port, context=context, timeout=120)
    with closing(connection):
        yield connection


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate(timeout=30)


def test_a_host_goes_from_its_cluster_to_discovery_whatever_becomes_of_the_hub(
    world: World, zipapp: Path, tmp_path: Path, eventually: Eventually
) -> None:
    """The hub is killed after every step, the agent after its download; others take their place and go on."""
    scratch = Scratch(tmp_path / "host").rhel()
    (tmp_path / "token").write_text(world.token())
    hub = world.start()
    told = {
        "PATH": os.environ["PATH"], "HUB_URL": f"https://127.0.0.1:{world.port}", "INFRA_ENV_ID": world.infra_env,
        "HOST_ID": HOST, "TOKEN_FILE": str(tmp_path / "token"), "HOST_MOUNT": str(scratch.root),
        "ENTER_HOST": str(scratch.root / "commands.sh"), "CA_FILE": str(tmp_path / "ca.pem"),
        "EXPECTED_BOOT_ID": scratch.text("proc/sys/kernel/random/boot_id").strip(), "RETRY_SECONDS": "0.1",
    }  # fmt: skip
    # The hub names /host, as in a pod; the pod knows better where it is: here, the scratch directory.
    agent = subprocess.Popen([sys.executable, str(zipapp)], env=told, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: REPORT in world.agent()["metadata"].get("annotations", {}), 120, "the report")
        assert PROGRESS in world.agent()["metadata"]["annotations"]
        end(hub)
        assert world.lead() == "RebootingForReclaim"
        agent.kill()
        agent.communicate(timeout=60)
        hub = world.start()
        agent = subprocess.Popen([sys.executable, str(zipapp)], env=told, stderr=subprocess.PIPE, text=True)
        said = agent.communicate(timeout=120)[1]
        assert scratch.commands == ["systemctl reboot"], said
        end(hub)
        assert world.lead() == ""  # a restart that began is no end: only a registration, a failure or the time is
        hub = world.start()
        status, body, _ = world.call("POST", "/hosts", world.env_token(), {"host_id": HOST})
        assert status == 201, body
        assert world.lead() == "RegisterHost"
        assert world.agent()["status"]["debugInfo"]["state"] == "discovering-unbound"
        assert world.lead() == ""
    finally:
        if agent.poll() is None:
            agent.kill()
            agent.communicate(timeout=60)
        end(hub)


def test_two_replicas_answer_alike_and_late_or_wrong_answers_change_nothing(world: World) -> None:
    other = free_port()
    one, two = world.start(), world.start(other)
    path = f"/hosts/{HOST}/instructions"
    try:
        _, first, _ = world.call("GET", path, world.token())
        _, second, _ = world.call("GET", path, world.token(), port=other)
        told = json.loads(first)["instructions"][0]
        assert told["step_id"] == json.loads(second)["instructions"][0]["step_id"]
        before = world.agent()["metadata"]["resourceVersion"]
        good = {"step_type": told["step_type"], "step_id": told["step_id"], "exit_code": 0}
        strangers = [
            (world.token("another-host"), good, 403), (world.env_token(), good, 403), ("", good, 401), ("x", good, 401),
            (world.token(seconds=-1), good, 401), (world.token(), b"{", 400), (world.token(), {"exit_code": "x"}, 400),
            (world.token(), b"x" * 70_000, 413), (world.token(), {**good, "step_id": "late"}, 204),
            (world.token(), {**good, "step_type": "reboot-for-reclaim"}, 204),
        ]  # fmt: skip
        for token, body, status in strangers:
            assert world.call("POST", path, token, body)[0] == status
        # A host's token never registers, nor does one of another InfraEnv; names that are none make no object.
        registrations = [(world.token(), HOST, 403), (world.env_token(), "../x", 400), (world.env_token(), "", 400)]
        for token, host, status in registrations:
            assert world.call("POST", "/hosts", token, {"host_id": host})[0] == status
        # Nor does one of an InfraEnv that is gone, though another has its name now; nor does it tell where things are.
        gone = replace(world, infra_env="of-the-one-before")
        assert gone.call("POST", "/hosts", gone.env_token(), {"host_id": HOST})[0] == 404
        assert gone.call("GET", path, gone.token())[0] == 404
        assert gone.call("GET", "/boot-artifacts/kernel", gone.env_token())[0] == 404
        assert world.agent()["metadata"]["resourceVersion"] == before
        assert world.call("POST", path, world.token(), good, port=other)[0] == 204
        after = world.agent()["metadata"]["resourceVersion"]
        assert after != before
        assert world.call("POST", path, world.token(), good)[0] == 204  # the same answer again, to the other replica
        assert world.agent()["metadata"]["resourceVersion"] == after
        # Cancelled before the agent asks for its restart: it is told to end, and that is written down.
        world.enter("reclaiming-rebooting")
        world.box.kubectl(
            "annotate", "agents.agent-install.openshift.io", HOST, "-n", world.namespace, f"{CANCEL}=now"
        )  # fmt: skip
        _, told, _ = world.call("GET", path, world.token())
        assert (json.loads(told)["instructions"], json.loads(told)["post_step_action"]) == ([], "exit")
        assert '"Cancelled"' in world.agent()["metadata"]["annotations"][REPORT]
        assert world.lead() == "ReclaimFailed"
        (world.folder / "paused").touch()
        assert world.call("POST", "/hosts", world.env_token(), {"host_id": HOST})[0] == 503
        assert REGISTRATION not in world.agent()["metadata"]["annotations"]
    finally:
        end(one)
        end(two)


def test_a_host_nobody_knew_becomes_an_agent_that_is_not_approved(world: World) -> None:
    hub = world.start()
    try:
        assert world.call("POST", "/hosts", world.env_token(), {"host_id": "new-host"})[0] == 201
        made = world.agent("new-host")
        assert made["spec"] == {"approved": False, "role": "auto-assign"}
        assert made["status"]["debugInfo"]["state"] == "discovering-unbound"
        assert world.call("POST", "/hosts", world.env_token(), {"host_id": "new-host"})[0] == 201
        # One whose first status did not get through has it after the next registration.
        labels = {"infraenvs.agent-install.openshift.io": "env"}
        world.box.apply({
            "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
            "spec": {"approved": False, "role": "auto-assign"},
            "metadata": {"name": "half-made", "namespace": world.namespace, "labels": labels},
        })  # fmt: skip
        assert world.call("POST", "/hosts", world.env_token(), {"host_id": "half-made"})[0] == 201
        assert world.agent("half-made")["status"]["debugInfo"]["state"] == "discovering-unbound"
    finally:
        end(hub)


def test_artifacts_come_whole_in_pieces_or_from_elsewhere(world: World) -> None:
    hub = world.start()
    try:
        status, body, headers = world.call("GET", "/boot-artifacts/initrd", world.token())
        assert (status, body) == (200, INITRD)
        ranged = {"Range": "bytes=1000-", "If-Range": headers["Last-Modified"]}
        status, body, _ = world.call("GET", "/boot-artifacts/initrd", world.token(), headers=ranged)
        assert (status, body) == (206, INITRD[1000:])
        status, body, headers = world.call("HEAD", "/boot-artifacts/kernel", "")
        assert (status, headers["Content-Length"]) == (200, str(len(KERNEL)))
        assert world.call("GET", "/boot-artifacts/initrd", "")[0] == 401
        assert world.call("GET", "/boot-artifacts/shadow", world.token())[0] == 404
        assert world.call("GET", "/boot-artifacts/..%2f..%2fkey.pem", world.token())[0] == 404
        (world.folder / "artifacts" / world.infra_env / "kernel").unlink()
        status, _, headers = world.call("GET", "/boot-artifacts/kernel", world.token())
        assert (status, headers["Location"]) == (307, "http://127.0.0.1:1/kernel")
    finally:
        end(hub)


def asked_too_often(world: World, path: str) -> tuple[int, str | None]:
    """The first answer that is no plain refusal; over one connection, so that it is often enough on any machine."""
    where = f"/api/assisted-install/v2/infra-envs/{world.infra_env}{path}"
    token = world.token()
    with connected(world) as one:
        for _ in range(2000):
            one.request("POST", where, b"{", {"X-Secret-Key": token})
            answer = one.getresponse()
            answer.read()
            if answer.status != 400:
                return answer.status, answer.getheader("Retry-After")
    return 0, None


def test_who_asks_too_often_waits_and_no_crowd_keeps_hosts_away(world: World, eventually: Eventually) -> None:
    path = f"/hosts/{HOST}/instructions"
    place = world.folder / "artifacts" / world.infra_env / "rootfs"
    with place.open("wb") as file:
        file.truncate(256 << 20)  # more than buffers take: its sending lasts until somebody reads it
    with serving(world):
        assert asked_too_often(world, path) == (429, "5")
        assert world.call("POST", path, world.token(), b"{")[0] == 400, "another token's rate is its own"

        where = f"/api/assisted-install/v2/infra-envs/{world.infra_env}/boot-artifacts/rootfs"
        with ExitStack() as held:
            for _ in range(DOWNLOADS_AT_ONCE):
                one = held.enter_context(connected(world))
                one.request("GET", where)
                held.callback(one.getresponse().close)
            status, _, headers = world.call("HEAD", "/boot-artifacts/rootfs", "")
            assert (status, headers["Retry-After"]) == (503, "10")
            # Downloads keep nobody from being told what to do.
            assert world.call("GET", path, world.token())[0] == 200
        eventually(lambda: world.call("HEAD", "/boot-artifacts/rootfs", "")[0] == 200, 90, "there is room again")
        # Nor do strangers who hold more connections than there may be, and do not even greet.
        with ExitStack() as held:
            silent = [
                held.enter_context(socket.create_connection(("127.0.0.1", world.port), timeout=120))
                for _ in range(CONNECTIONS + 50)
            ]
            assert world.call("GET", path, world.token())[0] == 200
            with suppress(ConnectionError):
                assert silent[0].recv(1) == b"", "the first had to make room"


METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
SEGMENTS = st.one_of(
    st.sampled_from(["hosts", HOST, "instructions", "boot-artifacts", "initrd", "rootfs", "..", "%2e%2e", "%00", ""]),
    st.text(max_size=12).map(lambda text: quote(text, safe="")),
)
HEADERS = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=60)
WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=40))
BODIES = st.one_of(
    st.binary(max_size=300),
    st.dictionaries(
        st.sampled_from(["step_type", "step_id", "exit_code", "output", "error", "host_id", "x"]), WORDS, max_size=6
    ).map(lambda body: json.dumps(body).encode()),
)  # fmt: skip


@pytest.mark.parametrize("many", [100, pytest.param(3000, marks=pytest.mark.full)])
def test_nothing_that_is_sent_crashes_the_hub_writes_or_gets_in(world: World, many: int) -> None:
    """Strangers are refused, whatever they send; and who has a host's token changes nothing with an answer to no step.

    With a token of discovery there are at most more hosts, which nobody approved.
    """
    base = f"/api/assisted-install/v2/infra-envs/{world.infra_env}"
    before = world.agents()

    @settings(max_examples=many, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(METHODS, st.lists(SEGMENTS, max_size=4), HEADERS, BODIES, st.sampled_from(["nobody", "host", "discovery"]))
    def sent(method: str, segments: list[str], token: str, body: bytes, who: str) -> None:
        # A new token each time: this is not about how often one may ask.
        path, secret, allowed = {
            "nobody": ("/".join([base, *segments]), token, {200} if segments[-1:] == ["rootfs"] else set()),
            "host": (f"{base}/hosts/{HOST}/instructions", world.token(), {200, 204}),
            "discovery": (f"{base}/hosts", world.env_token(), {201}),
        }[who]
        connection.request(method, path, body, {"X-Secret-Key": secret})
        answer = connection.getresponse()
        answer.read()
        assert answer.status in {400, 401, 403, 404, 405, 413, *allowed}, (method, path, answer.status)

    with serving(world), connected(world) as connection:
        sent()
    after = world.agents()
    assert {name: after[name] for name in before} == before
    assert not any(world.agent(name)["spec"]["approved"] for name in after if name not in before)

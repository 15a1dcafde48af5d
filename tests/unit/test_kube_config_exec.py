"""Exec plugins, as real small programs: what they are told, when they run, and what is said when they fail."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint
from hostler.kube.config import ApiConnection, load
from hostler.kube.errors import Unreachable
from hostler.kube.exec_credentials import ExecLogin
from hostler.kube.kubeconfig import Merged, Origin, parse
from tests.unit.kube_pki import Authority

V1 = "client.authentication.k8s.io/v1"


class Plugin:
    """A program that keeps what it was told, counts its runs, and answers what `answer` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        path = folder / "bin" / "plugin"
        path.write_text(
            f"#!{sys.executable}\n"
            "import os, pathlib, sys\n"
            "here = pathlib.Path(__file__).parent.parent\n"
            "with open(here / 'runs', 'a') as runs: print(*sys.argv[1:], os.environ.get('COLOUR'), file=runs)\n"
            "(here / 'told').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "exec((here / 'answer.py').read_text())\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.answers(token="t1")

    def does(self, code: str) -> None:
        (self.folder / "answer.py").write_text(code)

    def answers(self, version: str = V1, **status: Any) -> None:
        credential = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        self.does(f"print({json.dumps(credential)!r})")

    @property
    def runs(self) -> list[str]:
        path = self.folder / "runs"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def told(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "told").read_text()))

    def config(self, cluster: dict[str, Any] | None = None, **exec_: Any) -> dict[str, Any]:
        fields = {"apiVersion": V1, "command": "bin/plugin", "interactiveMode": "Never", **exec_}
        return {
            "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": {"exec": fields}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }

    def load(self, cluster: dict[str, Any] | None = None, **exec_: Any) -> ApiConnection:
        path = self.folder / "config"
        path.write_text(yaml.safe_dump(self.config(cluster, **exec_)))
        return load(str(path), None)

    def login(self, clock: Any, patience: float = 60.0) -> ExecLogin:
        chosen = Merged([(Origin("it", self.folder), parse(yaml.safe_dump(self.config()).encode(), "it"))]).choose(None)
        assert chosen.user.exec is not None
        return ExecLogin(chosen, chosen.user.exec, clock=clock, patience=patience)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def token(connection: ApiConnection) -> str:
    return asyncio.run(connection.credentials()).headers["Authorization"]


def complaint(connection: ApiConnection) -> str:
    with pytest.raises(Complaint) as caught:
        token(connection)
    assert isinstance(caught.value, Unreachable), "a loop must see it as a reason to try again"
    return str(caught.value)


def test_it_is_told_what_it_needs(plugin: Plugin) -> None:
    connection = plugin.load(args=["--one", "two"], env=[{"name": "COLOUR", "value": "blue"}])
    assert token(connection) == "Bearer t1"
    assert plugin.runs == ["--one two blue"]
    assert plugin.told == {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}


def test_it_is_told_about_the_cluster_if_it_asks(plugin: Plugin) -> None:
    (plugin.folder / "ca.crt").write_bytes(Authority().certificate)
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}]
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "name", "extensions": extensions}
    token(plugin.load(cluster, provideClusterInfo=True))
    told = plugin.told["spec"]["cluster"]
    assert told.pop("certificate-authority-data").startswith("LS0tLS1CRUdJTi")
    assert told == {"server": "https://api:6443", "tls-server-name": "name", "config": {"audience": "us"}}


def test_the_older_version_of_the_protocol(plugin: Plugin) -> None:
    plugin.answers("client.authentication.k8s.io/v1beta1", token="old")
    assert token(plugin.load(apiVersion="client.authentication.k8s.io/v1beta1")) == "Bearer old"


def test_it_runs_once_for_many_requests(plugin: Plugin) -> None:
    connection = plugin.load()

    async def many() -> None:
        await asyncio.gather(*(connection.credentials() for _ in range(20)))

    asyncio.run(many())
    assert len(plugin.runs) == 1


def test_it_runs_again_before_its_answer_expires(plugin: Plugin) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    plugin.answers(token="short", expirationTimestamp="2030-01-01T01:00:00Z")
    login = plugin.login(lambda: now.timestamp())

    async def story() -> None:
        nonlocal now
        await login.current()
        now += timedelta(minutes=59)
        assert len(plugin.runs) == 1
        await login.current()
        assert len(plugin.runs) == 1
        now += timedelta(seconds=55)
        plugin.answers(token="next")
        assert (await login.current()).headers == {"Authorization": "Bearer next"}

    asyncio.run(story())
    assert len(plugin.runs) == 2


def test_a_refusal_runs_it_again_but_many_refusals_run_it_once(plugin: Plugin) -> None:
    now = 1000.0
    login = plugin.login(lambda: now)

    async def story() -> None:
        nonlocal now
        await login.current()
        login.rejected()
        await login.current()  # refused within seconds of a run: the same again would be refused again
        assert len(plugin.runs) == 1
        now += 60
        plugin.answers(token="t2")
        for _ in range(5):
            login.rejected()
        assert (await login.current()).headers == {"Authorization": "Bearer t2"}
        login.rejected()
        await login.current()
        assert len(plugin.runs) == 2

    asyncio.run(story())


def test_it_may_give_a_certificate(plugin: Plugin) -> None:
    pair = Authority().issue("me")
    plugin.answers(clientCertificateData=pair.certificate.decode(), clientKeyData=pair.key.decode())
    credentials = asyncio.run(plugin.load().credentials())
    assert credentials.headers == {}
    assert credentials.ssl is not None


def test_a_missing_command_says_how_to_get_it(plugin: Plugin) -> None:
    connection = plugin.load(command="no-such-command-anywhere", installHint="Get it from your friends.")
    assert complaint(connection).endswith("cannot be run: No such file or directory. Get it from your friends.")


def saying(answer: dict[str, Any]) -> str:
    return f"print({json.dumps({'kind': 'ExecCredential', 'apiVersion': V1, **answer})!r})"


FAILURES = [
    ("import sys; print('no login', file=sys.stderr); sys.exit(3)", "ended with code 3: no login. Run it by hand"),
    ("print('hello')", "its answer is not an ExecCredential"),
    ("print('{}')", "it answered no apiVersion no kind"),
    (saying({}), "neither a token nor a certificate"),
    (saying({"status": {}}), "neither a token nor a certificate"),
    (saying({"status": {"clientCertificateData": "x"}}), "only one of certificate and key"),
    (saying({"status": {"token": "a\nHost: elsewhere"}}), "its token holds characters no token has"),
    ("print('x' * 5_000_000)", "its answer is not an ExecCredential"),
]


@pytest.mark.parametrize(("code", "words"), FAILURES)
def test_each_failure_has_its_sentence(plugin: Plugin, code: str, words: str) -> None:
    plugin.does(code)
    said = complaint(plugin.load())
    assert words in said
    assert "user 'u', exec plugin 'bin/plugin'" in said


def test_a_version_it_was_not_asked_for(plugin: Plugin) -> None:
    plugin.answers("client.authentication.k8s.io/v1beta1", token="x")
    assert "Set apiVersion in the kubeconfig to what the command speaks" in complaint(plugin.load())


def test_one_that_hangs_is_ended(plugin: Plugin) -> None:
    plugin.does(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "(here / 'pids').write_text(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(600)\n"
    )
    login = plugin.login(lambda: 0.0, patience=5.0)
    with pytest.raises(Complaint, match="no answer within 5 s"):
        asyncio.run(login.current())
    pids = (plugin.folder / "pids").read_text().split()
    for _ in range(100):  # the kernel ends what was killed in its own time
        if not any(map(_runs, pids)):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {pids}")


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_one_that_wants_a_person_says_so_where_there_is_none(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert "but there is no terminal" in complaint(plugin.load(interactiveMode="Always"))


def test_an_authority_that_is_gone_for_a_moment_is_tried_again(plugin: Plugin) -> None:
    authority = plugin.folder / "ca.crt"
    authority.write_bytes(Authority().certificate)
    connection = plugin.load({"certificate-authority": "ca.crt"}, provideClusterInfo=True)
    kept = authority.read_bytes()
    authority.unlink()
    assert f"cannot read {authority}" in complaint(connection)
    authority.write_bytes(kept)
    assert token(connection) == "Bearer t1"


def test_after_a_failure_it_is_tried_again(plugin: Plugin) -> None:
    connection = plugin.load()
    plugin.does("raise SystemExit(1)")
    complaint(connection)
    plugin.answers(token="back")
    assert token(connection) == "Bearer back"

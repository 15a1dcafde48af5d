"""`hostler run` with something wrong around it: one sentence, the right exit code, nothing started, nothing written."""

from __future__ import annotations

import base64
import datetime
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.accounts import PERSON
from tests.real.operating import hostler, kubeconfig_as, operator

Change = Callable[[dict[str, Any]], None]


def changed(sandbox: Sandbox, folder: Path, change: Change) -> Path:
    """The sandbox's kubeconfig with one thing wrong."""
    read = yaml.safe_load(sandbox.kubeconfig.read_text())
    change(read)
    path = folder / "kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path


def stranger_s_ca() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another cluster")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def expired_token() -> str:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    return ".".join((part('{"alg":"RS256"}'), part('{"exp":1000000000}'), part("signature")))


def wrong_ca(read: dict[str, Any]) -> None:
    read["clusters"][0]["cluster"] = {
        "server": read["clusters"][0]["cluster"]["server"], "certificate-authority-data": stranger_s_ca(),
    }  # fmt: skip


def wrong_token(read: dict[str, Any]) -> None:
    read["users"][0]["user"] = {"token": expired_token()}


def wrong_port(read: dict[str, Any]) -> None:
    read["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"


def no_context(read: dict[str, Any]) -> None:
    read["current-context"] = "elsewhere"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (wrong_ca, Exit.UNREACHABLE, "shows a certificate that the CA in"),
        (wrong_token, Exit.REFUSED, "the token expired on 2001-09-09"),
        (wrong_port, Exit.UNREACHABLE, "refuses the connection: nothing listens there"),
        (no_context, Exit.SETTING, "has no context 'elsewhere'"),
    ],
)
def test_a_wrong_kubeconfig(sandbox: Sandbox, tmp_path: Path, change: Change, code: Exit, words: str) -> None:
    for command in (("run", "--dry-run", "--http-address", "127.0.0.1:0"), ("pause", "--why", "x")):
        done = hostler(changed(sandbox, tmp_path, change), *command)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_a_kubeconfig_that_cannot_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("{[")
    done = hostler(sandbox.kubeconfig, "run", "--kubeconfig", str(tmp_path / "odd"))
    assert done.returncode == Exit.SETTING
    assert f"the kubeconfig {tmp_path / 'odd'} is not YAML" in done.stderr


def test_a_port_in_use(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with operator(sandbox, tmp_path, namespace, "--http-address", address) as running:
            assert running.process.wait(60) == Exit.SETTING
    said = running.log.read_text()
    assert f"cannot listen on {address}: another process already listens there" in said
    assert "HOSTLER_HTTP_ADDRESS" in said


def test_the_hub_s_port_in_use(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """A room finds it when the operator runs already: it is a sentence all the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ("--only", "reclaim", "--hub-url", f"https://{address}", "--hub-address", address)
        with operator(sandbox, tmp_path, namespace, *flags) as running:
            assert running.process.wait(60) == Exit.SETTING
    said = running.log.read_text()
    assert f"The hub cannot listen on {address}" in said
    assert "HOSTLER_HUB_ADDRESS" in said
    assert "Traceback" not in said


def test_a_namespace_that_is_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    somebody = kubeconfig_as(sandbox, tmp_path, PERSON, "system:masters")
    done = hostler(somebody, "run", "--operator-namespace", "nowhere", "--http-address", "127.0.0.1:0")
    assert done.returncode == Exit.SETTING
    assert "There is no namespace nowhere" in done.stderr
    assert "kubectl create namespace nowhere" in done.stderr


def test_without_any_right_it_runs_reads_nothing_and_writes_nothing(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    """RBAC may come later: the operator says what it may not do, is not ready, and does not crash in a loop."""
    with operator(sandbox, tmp_path, namespace, name="weak", rights=False) as weak:
        assert "may not watch" in weak.said("not following for now")["why"]
        status = hostler(sandbox.kubeconfig, "status", "--operator", weak.url)
        assert "Cannot tell whether Hostler is paused" in status.stdout
        assert weak.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_in_good_order_and_gives_the_lease_back(
    sandbox: Sandbox, namespace: str, tmp_path: Path, number: signal.Signals
) -> None:
    with operator(sandbox, tmp_path, namespace) as running:
        running.said("leading")
        running.process.send_signal(number)
        assert running.process.wait(timeout=60) == 0
    assert sandbox.get("lease", "hostler", "-n", namespace)["spec"].get("holderIdentity", "") == ""
    assert running.lines()[-1]["event"] == "stopped"

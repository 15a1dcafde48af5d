"""What a machine boots with, without any cluster: pins, tokens, cloud-init, the installer line, pointers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shlex
from dataclasses import replace
from pathlib import Path
from socket import create_connection
from typing import Any

import aiohttp
import pytest
import typer
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from hostler.cli.join_boot import _endpoint, _label
from hostler.cli.main import execute
from hostler.errors import Complaint, Exit
from hostler.host.facts import Known, Unknown
from hostler.join import ignition, kubeadm
from hostler.join.boot import Terms, serve
from hostler.join.model import Use
from hostler.join.observe import Memory, crowd_of, line_of, owners_of, uses_in
from hostler.join.settings import BOOTSTRAPPERS, CLUSTERS
from tests.unit.joining import NOW, POLICY, client, node
from tests.unit.joining import serving as asked_by_node
from tests.unit.kube_pki import Authority

CA = Authority("cluster").certificate


def test_the_pin_is_the_hash_of_the_ca_s_key() -> None:
    key = x509.load_pem_x509_certificate(CA).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert kubeadm.ca_pin(CA) == f"sha256:{hashlib.sha256(spki).hexdigest()}"
    for wrong in (b"", b"x", CA + Authority("another").certificate):
        with pytest.raises(ValueError, match=r"."):
            kubeadm.ca_pin(wrong)


def test_a_token_is_drawn_ends_and_is_not_shown() -> None:
    token = kubeadm.new_token()
    assert token != kubeadm.new_token()
    assert (len(token.id), len(token.secret)) == (6, 16)
    assert token.secret not in repr(token)
    body = kubeadm.token_secret(token, NOW, "w1")["stringData"]
    assert body["expiration"] == "1970-01-12T13:46:40Z"
    assert body["auth-extra-groups"].startswith("system:bootstrappers:")


def test_cloud_init_carries_the_join_configuration() -> None:
    config = kubeadm.join_configuration("w1", "api:6443", kubeadm.Token("abcdef", "s" * 16), ("sha256:x",), {"b": "2"})
    text = kubeadm.cloud_init("w1", config)
    assert text.startswith("#cloud-config\n")
    read = yaml.safe_load(text)
    assert read["hostname"] == "w1"
    (file,) = read["write_files"]
    assert file["permissions"] == "0600"
    assert yaml.safe_load(base64.b64decode(file["content"])) == config
    assert config["nodeRegistration"] == {
        "name": "w1", "kubeletExtraArgs": [{"name": "node-labels", "value": "b=2"}],
    }  # fmt: skip


def test_plain_http_needs_the_hash() -> None:
    with pytest.raises(ValueError, match="hash"):
        ignition.installer_line("/dev/sda", url="http://x/worker.ign")
    line = ignition.installer_line("/dev/sda", url="http://x/w", hash=ignition.digest(b"{}"))
    assert f"--ignition-hash=sha512-{hashlib.sha512(b'{}').hexdigest()}" in line
    assert line.endswith("--platform=metal")
    assert "--insecure" not in line, "coreos-installer asks for that only without a hash"
    assert "--insecure" not in ignition.installer_line("/dev/sda", url="https://x/w")
    assert "--ignition-file=w.ign" in ignition.installer_line("/dev/sda", file="w.ign")


def test_the_installer_line_can_be_pasted_into_a_shell() -> None:
    line = ignition.installer_line("/dev/sda", file="my worker.ign")
    assert shlex.split(line) == [
        "coreos-installer", "install", "/dev/sda", "--ignition-file=my worker.ign", "--platform=metal",
    ]  # fmt: skip


def test_a_pointer_is_read_back() -> None:
    made = json.loads(ignition.written(ignition.pointer("[fd00::1]:22623", CA)))
    assert ignition.read_pointer(made) == ("[fd00::1]:22623", CA)
    other = Authority("next")
    listed = made["ignition"]["security"]["tls"]["certificateAuthorities"]
    listed += ignition.pointer("x:1", other.certificate)["ignition"]["security"]["tls"]["certificateAuthorities"]
    _, both = ignition.read_pointer(made)
    assert len(x509.load_pem_x509_certificates(both)) == 2, "a CA that is being rotated"
    for wrong, why in (
        (b"garbage", "no certificate"), (other.issue("leaf").certificate, "is not a CA"),
        (CA + other.issue("leaf").key, "a private key"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"its root CA holds .*{why}"):
            ignition.read_pointer(ignition.pointer("x:1", wrong))


def run_ignition(folder: Path, ca: bytes, server: str) -> int:
    (folder / "ca.pem").write_bytes(ca)
    return execute(["join", "ignition", "--root-ca", str(folder / "ca.pem"), "--server", server, "--no-check"])


def test_what_must_not_get_into_a_config_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaf = Authority("root").issue("leaf")
    for wrong, why in ((b"", "no certificate"), (CA + leaf.key, "a private key"), (leaf.certificate, "not a CA")):
        assert run_ignition(tmp_path, wrong, "mcs:22623") == Exit.SETTING
        shown = capsys.readouterr()
        assert (shown.out, why in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("server", "taken"),
    [
        ("mcs.example.org:22623", "mcs.example.org:22623"), ("192.0.2.1:1", "192.0.2.1:1"),
        ("[fd00::1]:22623", "[fd00::1]:22623"), ("mcs", ""), ("mcs:", ""), ("mcs:0", ""), ("mcs:70000", ""),
        (":22623", ""), ("a b:22623", ""), ("user:pw@mcs:22623", ""), ("mcs:22623/x", ""), ("mcs:22623?x", ""),
        ("fd00::1:22623", ""), ("[fe80::1%eth0]:22623", ""), ("https://mcs:22623", ""), ('m"cs:22623', ""),
    ],
)  # fmt: skip
def test_a_server_is_a_host_and_a_port(
    server: str, taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_ignition(tmp_path, CA, server) == (Exit.OK if taken else Exit.USAGE)
    shown = capsys.readouterr()
    if taken:
        source = json.loads(shown.out)["ignition"]["config"]["merge"][0]["source"]
        assert source == f"https://{taken}/config/worker"
    else:
        assert "is not HOST:PORT" in shown.err


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Authority("root").issue("here", "127.0.0.1")
    key = load_pem_private_key(pair.key, None)
    hidden = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    for name, content in (("ca.pem", CA), ("tls.crt", pair.certificate), ("tls.key", hidden)):
        (tmp_path / name).write_bytes(content)
    words = ["join", "serve", "--root-ca", str(tmp_path / "ca.pem"), "--server", "mcs:22623", "--no-check", "--listen"]
    tls = ["--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")]
    assert execute([*words, "127.0.0.1:0", *tls]) == Exit.SETTING
    assert "cannot be used" in capsys.readouterr().err
    for name in ("gw:8080", "gw/path", "a b", "[gw]"):
        assert execute([*words, "127.0.0.1:0", "--plain-http", "--name", name]) == Exit.USAGE
        assert "is neither a name nor an address" in capsys.readouterr().err


def test_what_belongs_together_is_given_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_bytes(CA)
    ca, server = ["--root-ca", str(tmp_path / "ca.pem")], ["--server", "mcs:22623"]
    for words, why in (
        (["ignition", *ca], "--root-ca needs --server"), (["ignition", *server], "--server needs --root-ca"),
        (["serve", *ca, *server, "--no-check"], "--name ADDRESS"),  # nobody fetches from 0.0.0.0
        (["serve", *ca, *server, "--no-check", "--name", "10.0.0.1", "--tls-key", "y"], "belong together"),
        (["serve", *ca, *server, "--no-check", "--name", "gw.example", "--plain-http"], "--listen HOST:PORT"),
        (["serve", *ca, *server, "--no-check", "--name", "127.0.0.1"], "--plain-http"),
    ):  # fmt: skip
        assert execute(["join", *words]) == Exit.USAGE
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("rack=a1", ""), ("example.org/rack=", ""), ("node.kubernetes.io/rack=a", ""),
        ("x.kubelet.kubernetes.io/rack=a", ""), ("topology.kubernetes.io/zone=a", ""), ("notkubernetes.io/x=y", ""),
        ("node-role.kubernetes.io/worker=", "No kubelet may"), ("k8s.io/x=y", "No kubelet may"),
        ("kubernetes.io/x=y", "No kubelet may"), ("node-restriction.kubernetes.io/x=y", "No kubelet may"),
        ("rack", "is no label"), ("a/b/c=d", "is no label"), ("a=b=c", "is no label"), ("a=b,c=d", "is no label"),
        ("=x", "is no label"),
    ],
)  # fmt: skip
def test_labels_a_kubelet_would_not_start_with_are_refused(label: str, why: str) -> None:
    if not why:
        assert "=".join(_label(label)) == label
        return
    with pytest.raises((Complaint, typer.BadParameter), match=why):
        _label(label)


def test_where_a_new_machine_reaches_the_api_server() -> None:
    for url, at in (
        ("https://api.example.org", "api.example.org:443"), ("https://192.0.2.1:6443", "192.0.2.1:6443"),
        ("https://[fd00::1]:6443/", "[fd00::1]:6443"),
    ):  # fmt: skip
        assert _endpoint(url) == at
    for url in ("https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443", "https://127.9.9.9"):
        with pytest.raises(Complaint, match="--server HOST:PORT"):
            _endpoint(url)


def test_a_name_no_node_can_have_is_refused_before_anything_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    for command, name in (("cloud-init", "Worker-1"), ("expect", "a_b"), ("expect", "a..b")):
        assert execute(["join", command, name]) == Exit.USAGE
        assert "can be no node's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "broken",
    [
        None, [], {}, {"ignition": {}}, {"ignition": {"config": {"merge": []}}},
        {"ignition": {"config": {"merge": [{"source": "http://x/config"}]}, "security": {"tls": {
            "certificateAuthorities": [{"source": "data:text/plain;base64,AA=="}]}}}},
        {"ignition": {"config": {"merge": [{"source": "https://x/config"}]}, "security": {"tls": {
            "certificateAuthorities": [{"source": "https://elsewhere/ca"}]}}}},
        {"ignition": {"config": {"merge": [{"source": "https://x/config"}]}, "security": {"tls": {
            "certificateAuthorities": [{"source": "data:;base64,***"}]}}}},
    ],
)  # fmt: skip
def test_what_is_no_pointer_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        ignition.read_pointer(broken)


UNIT = """[Unit]
Description=Kubelet
[Service]
Type=notify
ExecStartPre=/bin/mkdir --parents /etc/kubernetes/manifests
# a remark
ExecStart=/usr/local/bin/wrapper \\
    /usr/bin/kubelet \\
      --config=/etc/kubernetes/kubelet.conf \\
# another
      --node-labels=node.openshift.io/os_id=${ID},${CUSTOM} \\
      --cloud-provider=external \\
       \\
      --v=${LEVEL}
Restart=always
[Install]
WantedBy=multi-user.target
"""


def test_the_kubelet_loses_its_cloud_provider_and_nothing_else() -> None:
    made = ignition.make_drop_in(UNIT)
    head, command = made.rsplit("ExecStart=", 1)
    assert head.endswith("[Service]\nExecStart=\n")
    assert command.split() == [
        "/usr/local/bin/wrapper", "/usr/bin/kubelet", "--config=/etc/kubernetes/kubelet.conf",
        "--node-labels=node.openshift.io/os_id=${ID},${CUSTOM}", "--v=${LEVEL}",
    ]  # fmt: skip
    config = ignition.pointer("mcs:22623", CA, drop_in=made)
    assert config["systemd"]["units"] == [
        {"name": "kubelet.service", "dropins": [{"name": "90-hostler-no-cloud-provider.conf", "contents": made}]}
    ]
    assert "systemd" not in ignition.pointer("mcs:22623", CA)


flag_words = st.sampled_from(
    ["--cloud-provider=external", "--cloud-provider vsphere", "--cloud-config=/etc/c.conf", "--cloud-provider="]
)
other_words = st.sampled_from(["--v=2", "--my-cloud-provider=x", "--x='a  b'", "${MORE}", "--node-ip=::1"])


@given(st.lists(flag_words | other_words, max_size=6))
def test_every_other_word_of_the_command_stays(words: list[str]) -> None:
    made = ignition.make_drop_in(f"[Service]\nExecStart=/usr/bin/kubelet {' '.join(words)}\n")
    if any(one in ("--cloud-provider=external", "--cloud-provider vsphere") for one in words):
        left = [one for one in words if not one.startswith("--cloud-")]
        assert made.rsplit("ExecStart=", 1)[1].split() == ["/usr/bin/kubelet", *" ".join(left).split()]
    else:
        assert made == "", "there is no provider to take away"


@pytest.mark.parametrize(
    ("unit", "others", "word"),
    [
        ("", (), "has 0 commands"),
        ("[Service]\nExecStart=/a\nExecStart=/b\n", (), "has 2 commands"),
        ("[Service]\nExecStart=/a\nExecStart=\nExecStart=/b\n[Unit]\nExecStart=/c", (), ""),
        (UNIT, ("[Service]\nExecStart=\nExecStart=/other\n",), "another drop-in"),
        (UNIT, ("[Service]\nEnvironment=X=1\n",), ""),
        ('[Service]\nExecStart=/k "--cloud-provider=external"', (), "not understood"),
        ('[Service]\nExecStart=/k --cloud-provider="external"', (), "not understood"),
        ("[Service]\nExecStart=/k --cloud-provider", (), "not understood"),
    ],
)
def test_a_unit_that_is_not_understood_is_not_replaced(unit: str, others: tuple[str, ...], word: str) -> None:
    if not word:
        ignition.make_drop_in(unit, others)
        return
    with pytest.raises(ValueError, match=word):
        ignition.make_drop_in(unit, others)


def test_a_look_at_the_head_or_at_another_path_is_no_fetch() -> None:
    """Only the whole path gives the config, and only a GET of it counts."""
    content, told = b"{}", list[str]()

    async def ask(method: str, url: str) -> int:
        async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
            assert (await answer.read() == content) is (answer.status == 200)
            return answer.status

    async def story() -> int:
        ready = asyncio.Event()

        def at(path: str) -> None:
            told.append(path)
            ready.set()

        serving = asyncio.create_task(serve(content, "127.0.0.1", 0, Terms(300, 1), None, at, told.append))
        await ready.wait()
        url = f"http://127.0.0.1{told[0]}"
        folder, root = url.rpartition("/")[0], f"http://127.0.0.1{told[0].split('/')[0]}/"
        tricks = [url[:-1], f"{url}/", f"{url}x", f"{folder}//worker.ign", folder, root, f"{folder}/%2e%2e/worker.ign"]
        for one in tricks:
            assert await ask("GET", one) == 404, one
        for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            assert await ask(method, url) == 405, method
        assert await ask("GET", url) == 200
        return await serving

    assert asyncio.run(story()) == 1
    assert len(told) == 2, "told of one fetch"


def test_a_request_without_a_path_is_answered_400() -> None:
    paths: list[str] = []
    troubles: list[object] = []

    async def story() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        ready = asyncio.Event()

        def at(path: str) -> None:
            paths.append(path)
            ready.set()

        serving = asyncio.create_task(serve(b"{}", "127.0.0.1", 0, Terms(300), None, at, lambda who: None))
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(paths[0].split("/")[0][1:]))
        writer.write(b"CONNECT \r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        serving.cancel()
        await asyncio.wait([serving])
        return answer

    assert b" 400 " in asyncio.run(story())
    assert troubles == []


def test_what_is_served_ends_by_itself() -> None:
    paths: list[str] = []
    assert asyncio.run(serve(b"{}", "127.0.0.1", 0, Terms(0.2), None, paths.append, lambda who: None)) == 0
    with pytest.raises(ConnectionRefusedError):
        create_connection(("127.0.0.1", int(paths[0].split("/")[0][1:])), 5).close()


def test_bootstrappers_are_accounts_or_token_groups() -> None:
    assert BOOTSTRAPPERS.read("system:bootstrappers, system:serviceaccount:a:b,system:bootstrappers") == (
        "system:bootstrappers", "system:serviceaccount:a:b",
    )  # fmt: skip
    for wrong in ("alice", "system:masters", "system:serviceaccount:a", "system:nodes", "system:bootstrappersx"):
        with pytest.raises(ValueError, match=r"^$"):
            BOOTSTRAPPERS.read(wrong)


def test_this_cluster_is_named_with_its_namespace() -> None:
    assert CLUSTERS.read("hub/self, hub/other.one,hub/self") == ("hub/self", "hub/other.one")
    for wrong in ("self", "/self", "hub/", "a/b/c", "Hub/self", "hub/self;x"):
        with pytest.raises(ValueError, match=r"^$"):
            CLUSTERS.read(wrong)


def test_memory_that_cannot_be_read_is_unknown_and_not_empty() -> None:
    use = Use("csr-1", "u", NOW)
    assert uses_in(Memory(data={"w1": line_of(use)}), NOW) == Known({"w1": use}, NOW)
    assert uses_in(None, NOW) == Known({}, NOW)
    for line in ("", "{}", "x", '{"csr": "a", "uid": 1, "at": 2}'):
        assert isinstance(uses_in(Memory(data={"w1": line}), NOW), Unknown), line


def test_the_crowd_is_of_the_last_hour_and_undecided() -> None:
    policy = replace(POLICY, slack=2)
    requests = [client(csr="a"), client(csr="b", made=NOW - 3599), client(csr="c", made=NOW - 3601)]
    crowd = crowd_of([*requests, client(csr="d", signer_name="x/y")], 5, 7, policy, NOW)
    assert (crowd.pending, crowd.allowed) == (2, 9)


def test_a_user_who_is_no_bootstrapper_makes_no_flood() -> None:
    strangers = [client(csr=f"s{number}", username="alice", groups=("system:authenticated",)) for number in range(50)]
    strangers += [asked_by_node(csr=f"v{number}", username="alice") for number in range(50)]
    assert crowd_of([*strangers, client(csr="a"), asked_by_node(csr="b")], 1, 1, POLICY, NOW).pending == 2


def test_a_node_s_own_name_is_its_own_whatever_it_says() -> None:
    owners = owners_of([node("w1", "10.0.0.1", "W2."), node("w2", "10.0.0.2")])
    assert owners["w2"] == {"w1", "w2"}
    assert owners["10.0.0.1"] == {"w1"}

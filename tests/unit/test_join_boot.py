"""What a machine boots with, without any cluster: pins, tokens, cloud-init, the installer line, pointers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from socket import create_connection
from typing import Any

import pytest
import typer
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from hostler.cli.join_boot import seconds_of
from hostler.host.facts import Known, Unknown
from hostler.join import ignition, kubeadm, kubelet
from hostler.join.model import Policy, Use
from hostler.join.observe import Memory, crowd_of, line_of, owners_of, uses_in
from hostler.join.serving import Terms, serve
from hostler.settings.join import BOOTSTRAPPERS, CLUSTERS
from tests.unit.joining import NOW, client, node
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
    assert "--insecure-ignition" in line
    assert "--insecure" not in ignition.installer_line("/dev/sda", url="https://x/w")
    assert "--ignition-file=w.ign" in ignition.installer_line("/dev/sda", file="w.ign")


def test_a_pointer_is_read_back() -> None:
    made = json.loads(ignition.written(ignition.pointer("[fd00::1]:22623", CA)))
    assert ignition.read_pointer(made) == ("[fd00::1]:22623", CA)


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
    made = kubelet.drop_in(UNIT)
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
    made = kubelet.drop_in(f"[Service]\nExecStart=/usr/bin/kubelet {' '.join(words)}\n")
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
        kubelet.drop_in(unit, others)
        return
    with pytest.raises(ValueError, match=word):
        kubelet.drop_in(unit, others)


def test_what_is_served_ends_by_itself() -> None:
    paths: list[str] = []
    assert asyncio.run(serve(b"{}", "127.0.0.1", 0, Terms(0.2), None, paths.append, lambda who: None)) == 0
    with pytest.raises(ConnectionRefusedError):
        create_connection(("127.0.0.1", int(paths[0].split("/")[0][1:])), 5).close()


@given(st.text(max_size=8))
def test_spans(text: str) -> None:
    try:
        assert 0 < seconds_of(text) <= 7 * 86400
    except typer.BadParameter:
        pass
    assert (seconds_of("90s"), seconds_of("30m"), seconds_of("2h"), seconds_of("7d")) == (90, 1800, 7200, 604800)


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
    policy = Policy((), slack=2)
    requests = [client(csr="a"), client(csr="b", made=NOW - 3599), client(csr="c", made=NOW - 3601)]
    crowd = crowd_of([*requests, client(csr="d", signer_name="x/y")], 5, 7, policy, NOW)
    assert (crowd.pending, crowd.allowed) == (2, 9)


def test_a_node_s_own_name_is_its_own_whatever_it_says() -> None:
    owners = owners_of([node("w1", "10.0.0.1", "W2."), node("w2", "10.0.0.2")])
    assert owners["w2"] == {"w1", "w2"}
    assert owners["10.0.0.1"] == {"w1"}

"""kubeconfig: what is read, which entry wins, and a clear sentence for everything that can be wrong."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint, Exit
from hostler.kube.config import ApiConnection, from_bytes, in_cluster, load
from hostler.kube.connection import Credentials
from hostler.kube.proxy import proxy_from_environment
from tests.unit.kube_pki import Authority

AUTHORITY = Authority()
PAIR = AUTHORITY.issue("someone")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, *, name: str = "one", **more: Any
) -> dict[str, Any]:
    """A kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": "https://api.example.com:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user if user is not None else {"token": "t0"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        **more,
    }


def write(path: Path, content: dict[str, Any] | str) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def now(connection: ApiConnection) -> Credentials:
    return asyncio.run(connection.credentials())


def complaint(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(Complaint) as caught:
        load(*args, **kwargs)
    assert caught.value.code is Exit.SETTING
    return str(caught.value)


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, pod or proxy of this machine gets in."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


# -- where it comes from


def test_the_file_given_comes_first_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "other", config(name="other")))
    path = write(tmp_path / "mine", config({"server": "https://mine:1/"}))
    connection = load(path, None)
    assert connection.server == "https://mine:1"
    assert connection.source == f"{path} (--kubeconfig), context 'one'"
    assert connection.namespace == "default"
    assert now(connection).headers == {"Authorization": "Bearer t0"}


def test_files_in_the_variable_are_merged_and_the_first_to_name_an_entry_wins_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = config({"server": "https://first:1"}, {"token": "first"}, name="shared")
    second = config({"server": "https://second:1", "tls-server-name": "x"}, {"token": "second"}, name="shared")
    second["contexts"] += [{"name": "more", "context": {"cluster": "shared", "user": "shared", "namespace": "ns"}}]
    second["current-context"] = "more"
    del first["current-context"]
    files = [write(tmp_path / "1", first), str(tmp_path / "missing"), "", write(tmp_path / "2", second)]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
    connection = load(None, None)
    assert (connection.context, connection.namespace) == ("more", "ns")
    assert (connection.server, connection.server_hostname) == ("https://first:1", None)
    assert now(connection).headers["Authorization"] == "Bearer first"
    assert "(KUBECONFIG)" in connection.source


def test_the_default_file_and_nothing_at_all(tmp_path: Path) -> None:
    assert "no cluster to talk to" in complaint(None, None)
    assert "hostler sandbox up" in complaint(None, None)
    (tmp_path / "home/.kube").mkdir(parents=True)
    write(tmp_path / "home/.kube/config", config())
    assert "the default file" in load(None, None).source


def test_a_variable_that_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/at/all")
    assert "KUBECONFIG is '/nowhere/at/all', but there is no such file" in complaint(None, None)


def test_paths_are_relative_to_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/ca.crt").write_bytes(AUTHORITY.certificate)
    (tmp_path / "a/token").write_text("from-file\n")
    write(tmp_path / "a/config", config({"certificate-authority": "ca.crt"}, {"tokenFile": "token"}))
    monkeypatch.chdir(tmp_path)
    assert now(load("a/config", None)).headers == {"Authorization": "Bearer from-file"}


# -- what can be wrong; each names the file and what to do


def test_a_file_that_is_not_there_or_may_not_be_read(tmp_path: Path) -> None:
    assert f"the kubeconfig {tmp_path}/none does not exist. Check --kubeconfig" in complaint(f"{tmp_path}/none", None)
    assert "cannot be read: Is a directory" in complaint(str(tmp_path), None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: [\n  {", "is not YAML"),
        ("a: b: c", "mapping values are not allowed here (line 1)"),
        ("", "is empty"),
        ("just words", "holds str, not the fields of a kubeconfig"),
        ("clusters: yes", "has a field of the wrong kind"),
        ("users: [{name: a, user: {token: 12345}}]", "users[0].user.token"),
        ("\x00", "is not YAML"),
        ("[" * 100, "nested too deeply"),
        ("- " * 1000, "nested too deeply"),
        ("clusters: null\nusers: null\ncontexts: null\ncurrent-context: ''", "has no current-context"),
        ("current-context: x", "has no context 'x' (asked for as the current-context). It has none."),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "bad", text)
    said = complaint(path, None)
    assert words in said
    assert f"the kubeconfig {path}" in said


def test_an_unknown_context_is_answered_with_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "c", config())
    assert "has no context 'two' (asked for as the context). It has 'one'." in complaint(path, "two")


def test_a_context_that_names_what_is_not_there(tmp_path: Path) -> None:
    broken = config()
    broken["contexts"][0]["context"]["cluster"] = "gone"
    assert "names cluster 'gone', which is not there. The clusters are 'one'" in complaint(
        write(tmp_path / "c", broken), None
    )
    broken = config()
    broken["contexts"][0]["context"]["user"] = "gone"
    assert "names user 'gone', which is not there. The users are 'one'" in complaint(
        write(tmp_path / "c", broken), None
    )


V1 = "client.authentication.k8s.io/v1"
OTHER = AUTHORITY.issue("other")
OLD = AUTHORITY.issue("old", days=(-20, -10))
YOUNG = AUTHORITY.issue("young", days=(5, 10))
LOCKED = AUTHORITY.issue("locked", password=b"secret")


def certified(certificate: bytes, key: bytes) -> dict[str, str]:
    return {"client-certificate-data": b64(certificate), "client-key-data": b64(key)}


WRONG: list[tuple[str, dict[str, Any], dict[str, Any] | None, str]] = [
    ("no server", {"server": ""}, None, "field server is empty"),
    ("odd server", {"server": "ftp://x"}, None, "is not a server's address"),
    ("odd port", {"server": "https://x:port"}, None, "is not a server's address"),
    ("missing CA", {"certificate-authority": "no.crt"}, None, "field certificate-authority: cannot read"),
    ("CA not base64", {"certificate-authority-data": "%%%"}, None, "certificate-authority-data is not base64"),
    ("CA no certificate", {"certificate-authority-data": b64(b"hello")}, None, "is not a PEM certificate"),
    ("insecure with CA", {"certificate-authority-data": b64(AUTHORITY.certificate), "insecure-skip-tls-verify": True},
     None, "insecure-skip-tls-verify is true although there is a certificate authority"),
    ("socks proxy", {"proxy-url": "socks5://p:1"}, None, "field proxy-url: 'socks5://p:1' is not a proxy we can use"),
    ("another's key", {}, certified(PAIR.certificate, OTHER.key), "do not belong together"),
    ("certificate only", {}, {"client-certificate-data": b64(PAIR.certificate)}, "has no client-key"),
    ("key only", {}, {"client-key-data": b64(PAIR.key)}, "has no client-certificate"),
    ("expired", {}, certified(OLD.certificate, OLD.key), "the client certificate expired on 20"),
    ("not yet", {}, certified(YOUNG.certificate, YOUNG.key), "is not valid before"),
    ("passphrase", {}, certified(LOCKED.certificate, LOCKED.key), "encrypted with a passphrase"),
    ("key is no key", {}, certified(PAIR.certificate, b"hello"), "is not a PEM private key"),
    ("certificate is none", {}, certified(b"hello", PAIR.key), "client-certificate-data is not a PEM certificate"),
    ("missing token file", {}, {"tokenFile": "no-token"}, "field tokenFile: cannot read"),
    ("two ways", {}, {"token": "t", "username": "u"}, "has both a token and a username"),
    ("odd token", {}, {"token": "a\nb"}, "holds characters no token has"),
    ("auth-provider", {}, {"auth-provider": {"name": "gcp"}}, "auth-provider 'gcp', gone since Kubernetes 1.26"),
    ("extra impersonation", {}, {"token": "t", "as": "x", "as-groups": ["a", "b"]}, "impersonates several groups"),
    ("half impersonation", {}, {"token": "t", "as-groups": ["a"]}, "impersonates a group or uid, but no user"),
    ("old exec", {}, {"exec": {"command": "x", "apiVersion": f"{V1}alpha1"}}, "not supported"),
    ("odd exec", {}, {"exec": {"command": "x", "apiVersion": V1, "interactiveMode": "Hm"}},
     "none of Never, IfAvailable, Always"),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "user", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_field_has_its_own_sentence(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, words: str
) -> None:
    path = write(tmp_path / "config", config(cluster, user))
    said = complaint(path, None)
    assert words in said
    assert "config" in said


def test_impersonation_and_passwords_are_sent(tmp_path: Path) -> None:
    user = {"username": "u", "password": "p", "as": "boss", "as-uid": "7", "as-groups": ["team"]}
    headers = now(load(write(tmp_path / "c", config(user=user)), None)).headers
    assert headers == {
        "Authorization": "Basic dTpw", "Impersonate-User": "boss", "Impersonate-Uid": "7", "Impersonate-Group": "team",
    }  # fmt: skip


# -- what changes while we run


def test_a_token_file_is_read_again_when_it_changes_and_kept_when_it_is_gone(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    connection = load(write(tmp_path / "c", config(user={"tokenFile": "token"})), None)
    assert now(connection).headers["Authorization"] == "Bearer one"
    token.write_text("second")
    assert now(connection).headers["Authorization"] == "Bearer second"
    token.unlink()
    connection.rejected()
    assert now(connection).headers["Authorization"] == "Bearer second"
    assert connection.rejections == 1
    token.write_text("third")
    assert now(connection).headers["Authorization"] == "Bearer third"


def test_certificate_files_are_read_again_when_both_have_changed(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(PAIR.certificate)
    key.write_bytes(PAIR.key)
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    connection = load(write(tmp_path / "c", config(user=user)), None)
    before = now(connection).ssl
    assert now(connection).ssl is before, "connections are pooled by their context, so it must stay the same"
    certificate.write_bytes(OTHER.certificate)
    assert now(connection).ssl is before, "half a change is not used"
    key.write_bytes(OTHER.key)
    after = now(connection).ssl
    assert after is not before
    assert now(connection).ssl is after


# -- from inside a pod


def mount(folder: Path) -> Path:
    folder.mkdir()
    (folder / "ca.crt").write_bytes(AUTHORITY.certificate)
    (folder / "token").write_text("pod-token")
    (folder / "namespace").write_text("hostler-system\n")
    return folder


def test_in_cluster(tmp_path: Path) -> None:
    folder = mount(tmp_path / "sa")
    connection = in_cluster(folder, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert (connection.server, connection.namespace) == ("https://[fd00::1]:443", "hostler-system")
    assert connection.source == f"in-cluster ({folder})"
    assert now(connection).headers == {"Authorization": "Bearer pod-token"}


@pytest.mark.parametrize(("missing", "words"), [("token", "token: cannot read"), ("ca.crt", "ca.crt: cannot read")])
def test_in_cluster_with_half_a_mount(tmp_path: Path, missing: str, words: str) -> None:
    folder = mount(tmp_path / "sa")
    (folder / missing).unlink()
    with pytest.raises(Complaint, match=words):
        in_cluster(folder, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_not_in_a_pod() -> None:
    with pytest.raises(Complaint, match="not in a pod"):
        in_cluster(environment={})


# -- from a Secret: written by others


def test_a_kubeconfig_in_a_secret(tmp_path: Path) -> None:
    connection = from_bytes(yaml.safe_dump(config()).encode(), "the kubeconfig in Secret a/b")
    assert now(connection).headers == {"Authorization": "Bearer t0"}
    assert connection.source == "the kubeconfig in Secret a/b, context 'one'"


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        (
            {},
            {"exec": {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}},
            "asks to run the command 'sh'",
        ),
        ({}, {"tokenFile": "/etc/passwd"}, "names a local file in tokenFile"),
        ({}, {"client-certificate": "/x", "client-key": "/y"}, "names a local file in client-certificate"),
        ({"certificate-authority": "/x"}, None, "names a local file in certificate-authority"),
    ],
)
def test_a_secret_may_name_no_file_and_run_nothing(
    cluster: dict[str, Any], user: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(Complaint, match="not allowed there") as caught:
        from_bytes(yaml.safe_dump(config(cluster, user)).encode(), "Secret a/b")
    assert words in str(caught.value)
    assert "Secret a/b" in str(caught.value)


def test_a_secret_may_not_blow_up() -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
    bomb = "\n".join(["l0: &l0 [x]", *levels]).encode()
    with pytest.raises(Complaint, match="aliases, which are not allowed"):
        from_bytes(bomb)
    with pytest.raises(Complaint, match="larger than 1024 KiB"):
        from_bytes(b"a" * (1 << 21))


# -- proxies


@pytest.mark.parametrize(
    ("server", "exceptions", "proxied"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com:6443", "example.com", False),
        ("https://api.example.com:6443", ".example.com", False),
        ("https://api.example.com:6443", "*.example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://example.com", "example.com", False),
        ("https://notexample.com", "example.com", True),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://api.example.com:6443", "api.example.com:6443", False),
        ("https://10.96.0.1:443", "10.96.0.0/12,.svc", False),
        ("https://10.96.0.1:443", "10.97.0.0/16", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://x", "*", False),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("http://api", "", False),
    ],
)
def test_the_proxy_of_the_environment(server: str, exceptions: str, proxied: bool) -> None:
    env = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": exceptions}
    assert proxy_from_environment(server, env) == ("http://proxy:3128" if proxied else None)

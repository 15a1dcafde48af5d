"""Which vCenters there are: from settings and a file, every mistake named, certificates as the seed says."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from hostler.capabilities import read_settings
from hostler.errors import Complaint, Exit
from hostler.vsphere.endpoints import Endpoint, Login, endpoints, parse_host
from hostler.vsphere.pinned_tls import PinnedContext
from hostler.vsphere.pins import Pin
from tests.unit.kube_pki import Authority

BASE = {"VCENTER_HOST": "vc1.example.com", "VCENTER_USER": "me", "VCENTER_PASSWORD": "hunter2"}


def found(**env: str) -> tuple[Endpoint, ...]:
    return endpoints(read_settings({}, {**BASE, **env}))


def mistake(**env: str) -> str:
    with pytest.raises(Complaint) as complaint:
        found(**env)
    assert complaint.value.code is Exit.SETTING
    assert "hunter2" not in str(complaint.value)
    return complaint.value.sentence


def test_the_environment_names_one() -> None:
    (one,) = found()
    assert (one.host, one.port, one.name, one.login()) == (
        "vc1.example.com",
        443,
        "vc1.example.com",
        Login("me", "hunter2"),
    )
    assert "hunter2" not in repr(one) + repr(one.login())
    assert endpoints(read_settings({}, {})) == ()


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("vc:8989", "vc", 8989),
        ("[fd00::1]:444", "fd00::1", 444),
        ("[fd00::1]", "fd00::1", 443),
        ("fd00::1", "fd00::1", 443),
        ("10.0.0.1", "10.0.0.1", 443),
    ],
)
def test_a_host_may_have_a_port(given: str, host: str, port: int) -> None:
    (one,) = found(VCENTER_HOST=given)
    assert (one.host, one.port) == (host, port)
    assert parse_host(one.name) == (host, port), "its name can be typed where a command asks for a host"


@pytest.mark.parametrize("wrong", ["https://vc", "vc:0", "vc:99999", "fd00::1::2", "vc/sdk", "a b"])
def test_a_wrong_host_is_named(wrong: str) -> None:
    assert f'VCENTER_HOST is "{wrong}"' in mistake(VCENTER_HOST=wrong)


def test_how_certificates_are_judged_is_a_setting(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(Authority().certificate)
    (unset,), (system,) = found(), found(VCENTER_TLS_VERIFY="true")
    (own,) = found(VCENTER_TLS_VERIFY="false", VCENTER_TLS_PIN="false", VCENTER_CA_BUNDLE=str(bundle))
    (listed,) = found(VCENTER_CERTIFICATE_SHA256=f"{'ab' * 32},{':'.join(['CD'] * 32)}")
    context = unset.tls()
    assert isinstance(context, PinnedContext)
    assert context.pin == Pin(()), "without a pin every certificate is refused"
    assert (system.tls().verify_mode, system.tls().check_hostname) == (ssl.CERT_REQUIRED, True)
    assert own.tls().verify_mode is ssl.CERT_REQUIRED, "the bundle wins"
    assert len(own.tls().get_ca_certs()) == 1, "only that file is trusted"
    context = listed.tls(Pin(("a remembered one",)))
    assert isinstance(context, PinnedContext)
    assert context.pin.sha256 == listed.certificate_sha256 == (":".join(["AB"] * 32), ":".join(["CD"] * 32))
    assert [one.pinned for one in (unset, system, own, listed)] == [True, False, False, False]
    assert [one.warning() for one in (unset, system, own, listed)] == [""] * 4


def test_without_a_pin_nothing_is_verified() -> None:
    (one,) = found(VCENTER_TLS_PIN="false")
    assert (one.tls().verify_mode, one.tls().check_hostname, one.pinned) == (ssl.CERT_NONE, False, False)
    assert type(one.tls()) is ssl.SSLContext
    assert "not verified" in one.warning()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"VCENTER_TLS_VERIFY": "true"}, "VCENTER_CERTIFICATE_SHA256 and VCENTER_TLS_VERIFY exclude each other"),
        ({"VCENTER_TLS_PIN": "false"}, "VCENTER_CERTIFICATE_SHA256 and VCENTER_TLS_PIN exclude each other"),
    ],
)
def test_settings_that_contradict_each_other_are_named(env: dict[str, str], sentence: str) -> None:
    assert sentence in mistake(VCENTER_CERTIFICATE_SHA256="ab" * 32, **env)


def test_a_bundle_that_is_none_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    assert f"VCENTER_CA_BUNDLE {empty} cannot be read" in mistake(VCENTER_CA_BUNDLE=str(empty))
    empty.write_text("no certificate")
    assert f"VCENTER_CA_BUNDLE {empty} holds no certificate" in mistake(VCENTER_CA_BUNDLE=str(empty))


def test_a_mounted_secret_is_read_at_every_login(tmp_path: Path) -> None:
    user, password = tmp_path / "user", tmp_path / "password"
    user.write_text("me\n")
    password.write_text("first\r\n")
    env = {"VCENTER_HOST": "vc", "VCENTER_USER_FILE": str(user), "VCENTER_PASSWORD_FILE": str(password)}
    (one,) = endpoints(read_settings({}, env))
    assert one.login() == Login("me", "first")
    password.write_text(" second ")
    assert one.login() == Login("me", " second "), "blanks belong to the password"
    password.write_text("")
    with pytest.raises(Complaint, match=r"VCENTER_PASSWORD_FILE .* is empty"):
        one.login()
    assert "cannot be read" in mistake(VCENTER_PASSWORD_FILE=str(tmp_path / "nowhere"))


def test_further_vcenters_come_from_a_file(tmp_path: Path) -> None:
    password, file = tmp_path / "password", tmp_path / "vcenters.yaml"
    password.write_text("second")
    file.write_text(
        f"vcenters:\n- {{host: vc2, user: you, passwordFile: {password}, tlsVerify: true}}\n"
        f"- {{host: 'vc3:8443', user: u, password: p, certificateSha256: [{'ab' * 32}]}}\n"
    )
    one, two, three = found(VCENTERS_FILE=str(file))
    assert [x.name for x in (one, two, three)] == ["vc1.example.com", "vc2", "vc3:8443"]
    assert (two.login(), two.pinned, three.pinned) == (Login("you", "second"), False, False)
    assert three.certificate_sha256 == (":".join(["AB"] * 32),)
    alone = endpoints(read_settings({}, {"VCENTERS_FILE": str(file)}))
    assert [x.name for x in alone] == ["vc2", "vc3:8443"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vcenters: 3", "must hold one key, vcenters, with a list"),
        ("- a", "must hold one key"),
        ("a: [", "is not YAML"),
        ("vcenters: [vc2]", "vcenters[0] must be a mapping"),
        ("vcenters: [{host: vc2, user: u}]", "vcenters[0].password is missing"),
        ("vcenters: [{user: u, password: p}]", "vcenters[0].host is"),
        ("vcenters: [{host: vc2, user: u, password: 7}]", "vcenters[0].password must be text"),
        ("vcenters: [{host: vc2, user: u, password: p, tlsVerify: maybe}]", "[0].tlsVerify must be true or false"),
        ("vcenters: [{host: vc2, user: u, password: p, tlsPin: maybe}]", "[0].tlsPin must be true or false"),
        ("vcenters: [{host: vc2, user: u, password: p, certificateSha256: ab}]", "must be a list of SHA-256"),
        ("vcenters: [{host: vc2, user: u, password: p, certificateSha256: [ab]}]", "must be a list of SHA-256"),
        ("vcenters: [{host: vc2, user: u, pasword: p}]", "vcenters[0].pasword is not known"),
        ("vcenters: [{host: vc1.example.com, user: u, password: p}]", "vc1.example.com is configured more than once"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_text(text)
    assert sentence in mistake(VCENTERS_FILE=str(file))


def test_every_mistake_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_text("vcenters: [{host: 'a b', user: u}]")
    said = mistake(VCENTER_CA_BUNDLE=str(tmp_path / "nowhere"), VCENTERS_FILE=str(file))
    assert all(word in said for word in ("VCENTER_CA_BUNDLE", "vcenters[0].host", "vcenters[0].password"))

"""What a vCenter is recognised by: the decision, the pins, and a TLS context that compares before anything is sent."""

from __future__ import annotations

import io
import itertools
import socket
import ssl
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from hostler.fingerprints import fingerprint_of, read_fingerprint, read_fingerprints
from hostler.host.conditions import Status
from hostler.safety.vcenter_trust import certificate_condition
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.pinned_tls import (
    CertificateRefused,
    Seen,
    choose_pin,
    look_at_server,
    pinned_context,
    refused_certificate,
)
from hostler.vsphere.pins import Entry, NotAnEntry, Pin, entry_key, issuing_authorities, read_entry, write_entry
from hostler.vsphere.trust import (
    Decision,
    Do,
    ReadOnly,
    Remembered,
    Says,
    Trust,
    TrustUnavailable,
    decide_trust,
)
from tests.unit.kube_pki import Authority

DIGEST = fingerprint_of(b"a certificate")
KEPT, USED = Entry("vc", DIGEST, by="kept"), Entry("vc", DIGEST, by="used")


# -- the decision


def remembered(says: Says, held: str) -> Remembered:
    return Remembered(says, KEPT if says is Says.PINNED else None, "a reason", held)


@pytest.mark.parametrize(
    ("says", "used", "held", "do"),
    [
        (Says.PINNED, None, "", Do.USE),
        (Says.PINNED, USED, "paused", Do.USE),
        (Says.NOTHING, None, "", Do.CONTACT),
        (Says.NOTHING, None, "paused", Do.REFUSE),
        (Says.NOTHING, USED, "", Do.RESTORE),
        (Says.NOTHING, USED, "paused", Do.USE),
        (Says.NO_PLACE, None, "", Do.CONTACT),
        (Says.NO_PLACE, USED, "", Do.USE),
        (Says.UNKNOWN, None, "", Do.REFUSE),
        (Says.UNKNOWN, USED, "", Do.USE),
        (Says.UNREADABLE, None, "", Do.REFUSE),
        (Says.UNREADABLE, USED, "", Do.REFUSE),
    ],
)
def test_what_is_compared_with(says: Says, used: Entry | None, held: str, do: Do) -> None:
    assert decide_trust(remembered(says, held), used).do is do


def test_no_contact_is_made_once_something_was_trusted() -> None:
    for says, used, held in itertools.product(Says, (None, USED), ("", "paused")):
        found: Decision = decide_trust(remembered(says, held), used)
        first = used is None and says in (Says.NOTHING, Says.NO_PLACE)
        assert (found.do is Do.CONTACT) == (first and not (held and says is Says.NOTHING))
        assert (found.entry is not None) == (found.do in (Do.USE, Do.RESTORE))
        if says is Says.PINNED:
            assert found.entry is KEPT, "what every replica reads wins over this one's memory"


# -- fingerprints and entries


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["", ":", " "]), st.booleans(), st.booleans())
def test_a_fingerprint_is_read_in_every_spelling(raw: bytes, between: str, upper: bool, prefix: bool) -> None:
    text = raw.hex(between) if between else raw.hex()
    text = ("SHA256:" if prefix else "") + (text.upper() if upper else text)
    assert read_fingerprint(text) == raw.hex(":").upper()
    assert read_fingerprints(f"{text}, {text},") == (raw.hex(":").upper(),)


ARABIC = "\N{ARABIC-INDIC DIGIT ONE}"


@pytest.mark.parametrize("text", ["", "AB", "ab" * 31, "ab" * 33, "zz" * 32, "ab" * 32 + "\n0", ARABIC * 64])
def test_what_is_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_fingerprint(text)


HOSTS = st.text("abAB09._-:%", min_size=1, max_size=12)


@given(HOSTS, st.integers(1, 65535), HOSTS, st.integers(1, 65535))
def test_two_vcenters_never_share_a_key(one: str, port: int, other: str, another: int) -> None:
    same = (one.lower(), port) == (other.lower(), another)
    assert (entry_key(one, port) == entry_key(other, another)) == same
    assert set(entry_key(one, port)) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-"), "as a Secret allows"


def test_an_entry_is_read_as_it_was_written(ca: Authority) -> None:
    entry = Entry("VC.example.com:8443", DIGEST, ca.certificate.decode(), "s", "i", "n", "me", "now")
    assert read_entry(write_entry(entry), "vc.example.com:8443") == entry
    assert entry.pin == Pin((DIGEST,), ca.certificate.decode())


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"null", b"[]", b"\xff\xfe", b'{"vcenter": "vc", "sha256": ""}', b'{"vcenter": "vc", "sha256": 7}',
     b'{"vcenter": "other", "sha256": "' + DIGEST.encode() + b'"}',
     b'{"vcenter": "vc", "sha256": "' + DIGEST.encode() + b'", "ca": "garbage"}',
     b'{"vcenter": "vc", "sha256": "' + DIGEST.encode() + b'", "sha1": ""}'],
)  # fmt: skip
def test_garbage_is_no_entry(data: bytes) -> None:
    with pytest.raises(NotAnEntry):
        read_entry(data, "vc")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_entry_or_garbage(data: bytes) -> None:
    with suppress(NotAnEntry):
        read_entry(data, "vc")


# -- certificates


@dataclass
class Server:
    pem: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.pem.decode())

    @property
    def sha256(self) -> str:
        return fingerprint_of(self.der)


def make_server(by: Authority | None = None, host: str = "127.0.0.1", days: float = 2) -> Server:
    """Without an issuer: of a CA that nobody knows."""
    made = (by or Authority("a stranger")).issue("server", host, days=(-9, days))
    return Server(made.certificate, made.key)


def make_issued_by(issuer: Server) -> bytes:
    """A certificate that another server's key signed, as DER; that server is no CA."""
    parent, key = x509.load_pem_x509_certificate(issuer.pem), load_pem_private_key(issuer.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    made = x509.CertificateBuilder(parent.subject, name, key.public_key(), x509.random_serial_number())
    dates = made.not_valid_before(parent.not_valid_before_utc).not_valid_after(parent.not_valid_after_utc)
    return dates.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def bundle_of(*files: bytes | str, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for number, file in enumerate(files):
            archive.writestr(f"certs/lin/{number}.0", file)
    return out.getvalue()


def make_odd_ca(*extensions: tuple[str, bytes], change: tuple[bytes, bytes] = (b"", b"")) -> bytes:
    """A CA with these extensions, by OID; `change` is made to its bytes after it was signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "odd")]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=9))
    for oid, value in extensions:
        made = made.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=False)
    der = made.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    return ssl.DER_cert_to_PEM_cert(der.replace(*change)).encode()


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority("CA")


def test_only_the_issuing_ca_counts(ca: Authority) -> None:
    server, namesake, pem = make_server(ca), Authority("CA"), ca.certificate
    assert issuing_authorities(server.der, bundle_of(namesake.certificate, "a CRL", pem + pem)) == pem.decode()
    assert issuing_authorities(server.der, bundle_of(namesake.certificate, server.pem, b"\x00\xff")) == ""
    assert issuing_authorities(make_issued_by(server), bundle_of(server.pem)) == "", "that is no CA"
    assert issuing_authorities(ssl.PEM_cert_to_DER_cert(pem.decode()), bundle_of(pem)) == "", "itself"
    assert issuing_authorities(b"no certificate", bundle_of(pem)) == ""


def test_a_ca_with_odd_extensions_is_passed_over(ca: Authority) -> None:
    server = make_server(ca)
    twice = make_odd_ca(("1.2.3.4.5", b"x"), ("1.2.3.4.6", b"x"), change=(b"\x2a\x03\x04\x06", b"\x2a\x03\x04\x05"))
    x400 = make_odd_ca(("2.5.29.17", b"\x30\x02\xa3\x00"))
    for odd, error in ((twice, x509.DuplicateExtension), (x400, x509.UnsupportedGeneralNameType)):
        with pytest.raises(error):
            _ = x509.load_pem_x509_certificate(odd).extensions
        assert issuing_authorities(server.der, bundle_of(odd, ca.certificate)) == ca.certificate.decode()


def test_a_bundle_is_read_within_bounds(ca: Authority) -> None:
    server = make_server(ca)
    large = b" " * (1 << 22)
    assert issuing_authorities(server.der, bundle_of(large, ca.certificate)) == ca.certificate.decode(), (
        "too large a file is passed over"
    )
    assert issuing_authorities(server.der, bundle_of(*[b" " * (1 << 18)] * 8, ca.certificate)) == "", (
        "too much is not read"
    )
    assert issuing_authorities(server.der, bundle_of(*[b""] * 400, ca.certificate)) == "", "nor too many"


@given(st.binary(max_size=400), st.integers(0, 300))
def test_any_bytes_may_be_published(data: bytes, at: int) -> None:
    server, authority = PUBLISHED
    assert issuing_authorities(server.der, data) == ""
    broken = bytearray(bundle_of(authority.certificate))
    broken[at : at + len(data)] = data
    assert issuing_authorities(server.der, bytes(broken)) in ("", authority.certificate.decode())


_published = Authority()
PUBLISHED = (make_server(_published), _published)


# -- connections


@dataclass
class Listening:
    port: int = 0
    received: bytearray = field(default_factory=bytearray)
    handshakes: int = 0


@contextmanager
def serving(server: Server, folder: Path, answer: bytes = b"") -> Iterator[Listening]:
    """A TLS server that keeps what it receives after the handshake, and answers each request with the same."""
    (folder / "cert").write_bytes(server.pem)
    (folder / "key").write_bytes(server.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "cert", folder / "key")
    found, ended = Listening(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        found.port = int(listening.getsockname()[1])

        def accept() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    raw, _ = listening.accept()
                    raw.settimeout(5)
                    with raw, tls.wrap_socket(raw, server_side=True) as connected:
                        found.handshakes += 1
                        if data := connected.recv(65536):
                            found.received += data
                            connected.sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()


def published(bundle: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(bundle) + bundle


def talk(context: ssl.SSLContext, port: int, host: str = "127.0.0.1") -> None:
    """What a client does: connect, then send."""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as raw,
        context.wrap_socket(raw, server_hostname=host) as sock,
    ):
        sock.sendall(b"secret")


def test_another_certificate_gets_not_one_byte(tmp_path: Path) -> None:
    server, other = make_server(), make_server()
    with serving(server, tmp_path) as found:
        with pytest.raises(CertificateRefused) as refused:
            talk(pinned_context(Pin((other.sha256,))), found.port)
        assert (refused.value.shown, refused.value.pin.sha256) == (server.sha256, (other.sha256,))
        with pytest.raises(CertificateRefused):
            talk(pinned_context(Pin(())), found.port)
        talk(pinned_context(Pin((other.sha256, server.sha256))), found.port)
    assert found.received == b"secret", "only of the connection that was let through"
    assert found.handshakes > 0


@pytest.mark.parametrize("kind", ["namesake", "host name", "expired", "self-signed"])
def test_a_pinned_ca_refuses(ca: Authority, tmp_path: Path, kind: str) -> None:
    server = {
        "namesake": make_server(Authority("CA")),
        "host name": make_server(ca, host="other.example.com"),
        "expired": make_server(ca, days=-1),
        "self-signed": make_server(),
    }[kind]
    pin = Pin((DIGEST,), ca.certificate.decode())
    with serving(server, tmp_path) as found:
        with pytest.raises(ssl.SSLCertVerificationError) as error:
            talk(pinned_context(pin), found.port)
        refused = refused_certificate("127.0.0.1", found.port, pin, error.value)
    assert (refused.shown, bytes(found.received)) == (server.sha256, b"")
    assert refused.why, "OpenSSL's reason"


def test_a_pinned_ca_lets_a_renewal_pass(ca: Authority, tmp_path: Path) -> None:
    with serving(make_server(ca), tmp_path) as found:
        talk(pinned_context(Pin((DIGEST,), ca.certificate.decode())), found.port)
    assert found.received == b"secret"


def test_the_comparison_cannot_be_left_out() -> None:
    context = pinned_context(Pin((DIGEST,)))
    with pytest.raises(NotImplementedError):
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())
    with socket.socket() as raw, pytest.raises(ValueError, match="full handshake"):
        context.wrap_socket(raw, do_handshake_on_connect=False)
    with socket.socket() as raw, pytest.raises(ValueError, match="full handshake"):
        context.wrap_socket(raw, server_side=True)


def test_a_session_is_never_resumed(tmp_path: Path) -> None:
    server = make_server()
    context = pinned_context(Pin((server.sha256,)))
    with (
        serving(server, tmp_path, b"answer") as found,
        socket.create_connection(("127.0.0.1", found.port), 5) as raw,
        context.wrap_socket(raw) as sock,
    ):
        sock.sendall(b"question")
        sock.recv(10)
        assert sock.session is not None
        with socket.socket() as second, pytest.raises(ValueError, match="full handshake"):
            context.wrap_socket(second, session=sock.session)


def test_a_first_contact_pins_the_ca_or_the_certificate(ca: Authority, tmp_path: Path) -> None:
    def contact(server: Server, bundle: bytes) -> Pin:
        with serving(server, tmp_path, published(bundle)) as found:
            seen = look_at_server("127.0.0.1", found.port)
            assert seen.leaf == server.der
            assert b"Authorization" not in found.received
            return choose_pin("127.0.0.1", found.port, seen)

    server = make_server(ca)
    assert contact(server, bundle_of(ca.certificate)) == Pin((server.sha256,), ca.certificate.decode())
    assert contact(server, bundle_of(Authority().certificate)) == Pin((server.sha256,))
    assert contact(server, b"not a zip") == Pin((server.sha256,))
    elsewhere = make_server(ca, host="other.example.com")
    assert contact(elsewhere, bundle_of(ca.certificate)) == Pin((elsewhere.sha256,)), "not for our host name"
    expired = make_server(ca, days=-1)
    assert contact(expired, bundle_of(ca.certificate)) == Pin((expired.sha256,))


def test_a_server_that_changes_is_pinned_by_its_first(ca: Authority, tmp_path: Path) -> None:
    first, second = make_server(ca), make_server(ca)
    with serving(second, tmp_path) as found:
        assert choose_pin("127.0.0.1", found.port, Seen(first.der, bundle_of(ca.certificate))) == Pin((first.sha256,))


def test_a_download_is_bounded_and_may_fail(ca: Authority, tmp_path: Path) -> None:
    for answer in (b"HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n", b"garbage", b"", published(b" " * (1 << 21))):
        with serving(make_server(), tmp_path, answer) as found:
            assert look_at_server("127.0.0.1", found.port).bundle == b""
    with serving(make_server(), tmp_path) as found:
        look_at_server("127.0.0.1", found.port, bundle=False)
    assert found.received == b""


# -- remembering


class Store:
    """A place that answers as it is told; what is kept is what it says afterwards."""

    def __init__(self, first: Remembered, after: Remembered | None = None) -> None:
        self.says, self.after = first, after
        self.kept: list[Entry] = []

    def read(self, _: Endpoint) -> Remembered:
        return self.says

    def keep(self, _: Endpoint, entry: Entry) -> Remembered:
        self.kept.append(entry)
        self.says = self.after or Remembered(Says.PINNED, entry)
        return self.says


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with serving(make_server(), tmp_path) as found:
        yield Endpoint("127.0.0.1", found.port)


def test_the_loser_of_two_first_contacts_uses_the_winners(endpoint: Endpoint) -> None:
    store = Store(Remembered(Says.NOTHING), Remembered(Says.PINNED, KEPT))
    assert Trust(store).pin_for(endpoint) == KEPT.pin
    assert len(store.kept) == 1


def test_without_a_place_memory_keeps_it_with_a_warning(endpoint: Endpoint) -> None:
    for store in (Store(Remembered(Says.NO_PLACE, why="dry run")),
                  Store(Remembered(Says.NOTHING), Remembered(Says.NO_PLACE, why="dry run"))):  # fmt: skip
        trust = Trust(store)
        first = trust.pin_for(endpoint)
        assert trust.warning(endpoint) == "dry run"
        gone = Endpoint("127.0.0.1", endpoint.port)
        assert trust.pin_for(gone) == first
        store.says = Remembered(Says.PINNED, KEPT)
        assert (trust.pin_for(endpoint), trust.warning(endpoint)) == (KEPT.pin, "")


def test_what_was_deleted_is_written_again(endpoint: Endpoint) -> None:
    store = Store(Remembered(Says.PINNED, KEPT))
    trust = Trust(store)
    trust.pin_for(endpoint)
    store.says = Remembered(Says.NOTHING)
    assert trust.pin_for(endpoint) == KEPT.pin
    assert store.kept == [KEPT]


def test_nothing_to_compare_with_is_no_connection(endpoint: Endpoint) -> None:
    for says in (Remembered(Says.UNKNOWN, why="away."), Remembered(Says.UNREADABLE, why="garbage."),
                 Remembered(Says.NOTHING, held="Paused.")):  # fmt: skip
        with pytest.raises(TrustUnavailable, match="Nothing says which certificate"):
            Trust(Store(says)).pin_for(endpoint)
    with pytest.raises(TrustUnavailable, match="could not be remembered"):
        Trust(Store(Remembered(Says.NOTHING), Remembered(Says.UNKNOWN, why="away."))).pin_for(endpoint)


def test_a_command_uses_what_others_remembered(endpoint: Endpoint) -> None:
    key, mine = entry_key(endpoint.host, endpoint.port), Entry(endpoint.name, DIGEST)
    assert Trust(ReadOnly({key: write_entry(mine)}, "")).pin_for(endpoint) == mine.pin
    for entries in ({}, {key: b"garbage"}):
        with pytest.raises(TrustUnavailable):
            Trust(ReadOnly(entries, "no entry.")).pin_for(endpoint)


@dataclass
class Judged:
    certificate_refused: str = ""
    certificate_warning: str = ""
    not_connected: str = ""


def test_a_vcenter_that_is_away_is_not_called_trusted() -> None:
    found = certificate_condition([Judged(), Judged(not_connected="vCenter vc cannot be reached.")])
    said = (found.status, found.reason, found.message)
    assert said == (Status.UNKNOWN, "NotConnected", "vCenter vc cannot be reached.")
    assert certificate_condition([Judged("another", not_connected="another")]).status is Status.FALSE


def test_the_condition_names_who_is_refused() -> None:
    fine, warned, refused = Judged(), Judged(certificate_warning="forgotten"), Judged("another", "forgotten")
    assert certificate_condition([fine]).status is Status.TRUE
    assert certificate_condition([fine, warned]).status is Status.UNKNOWN
    found = certificate_condition([warned, refused, fine])
    assert (found.status, found.reason, found.message) == (Status.FALSE, "AnotherCertificate", "another")

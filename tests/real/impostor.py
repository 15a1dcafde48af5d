"""An impostor between Hostler and its vCenter, and the wire that leads to one or the other.

The impostor is a real TLS server with a certificate of its own. It keeps every byte it receives after the handshake,
which is what an attacker would have, and passes it on to the real vCenter, so that a client that lets it in logs in.
"""

from __future__ import annotations

import datetime
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def make_authority(name: str) -> Pair:
    """A CA, as vCenter's own (VMCA) is one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    return _signed(subject, key, (None, key), x509.BasicConstraints(ca=True, path_length=0)), key


def make_leaf(folder: Path, name: str, issuer: Pair | None = None, host: str = "127.0.0.1") -> Leaf:
    """A server's certificate and its key in files; without an issuer it is self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = _signed(subject, key, issuer or (None, key), x509.BasicConstraints(ca=False, path_length=None), host)
    chain = [made, *([issuer[0]] if issuer else [])]
    cert, keys = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain))
    keys.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Leaf(cert, keys, colons(made), issuer is not None)


@dataclass(frozen=True)
class Leaf:
    cert: Path
    key: Path
    sha256: str  # AB:CD:...
    issued: bool  # by a CA, not by itself


def colons(certificate: x509.Certificate) -> str:
    return sha256(certificate.public_bytes(serialization.Encoding.DER)).digest().hex(":").upper()


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate | None, ec.EllipticCurvePrivateKey],
    constraints: x509.BasicConstraints,
    host: str = "",
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    by = issuer[0].subject if issuer[0] is not None else subject
    made = (
        x509.CertificateBuilder(by, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(constraints, critical=True)
    )
    if host:
        try:
            names: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            names = x509.DNSName(host)
        made = made.add_extension(x509.SubjectAlternativeName([names]), critical=False)
    return made.sign(issuer[1], hashes.SHA256())


@dataclass
class Impostor:
    """What it received, in the clear, and how many connections it had."""

    port: int
    leaf: Leaf
    received: bytearray = field(default_factory=bytearray)
    handshakes: int = 0  # that the client completed
    connections: int = 0

    def heard(self, text: str) -> bool:
        return text.encode() in bytes(self.received)


@contextmanager
def impostor(leaf: Leaf, upstream: int) -> Iterator[Impostor]:
    """`upstream` is the port of the vCenter that it stands before."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(leaf.cert, leaf.key)
    up = ssl.create_default_context()
    up.check_hostname, up.verify_mode = False, ssl.CERT_NONE
    made = Impostor(0, leaf)

    def serve(raw: socket.socket) -> None:
        made.connections += 1
        raw.settimeout(20)
        with suppress(OSError), tls.wrap_socket(raw, server_side=True) as client:
            made.handshakes += 1
            with socket.create_connection(("127.0.0.1", upstream), 20) as plain, up.wrap_socket(plain) as server:
                _relay(client, server, made.received.extend)

    with _listening(serve) as made.port:
        yield made


class Wire:
    """A port that leads to another one, whichever it is now: what an attacker in the network, or DNS, changes."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.others: list[int] = []  # where the next connections lead, one each
        self.port = 0
        self._open: list[socket.socket] = []

    def lead_to(self, target: int) -> None:
        """From now on there; what is open is cut, as when a network is taken over."""
        self.target = target
        open_, self._open = self._open, []
        for one in open_:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve(self, client: socket.socket) -> None:
        target = self.others.pop() if self.others else self.target
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", target), 20) as server:
            self._open += [client, server]
            _relay(client, server, lambda _: None)


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    made = Wire(target)
    with _listening(made.serve) as made.port:
        yield made
        made.lead_to(0)


def _relay(client: socket.socket, server: socket.socket, keep: Callable[[bytes], object]) -> None:
    """Both ways until one side ends; in one thread, because a TLS connection is not safe in two."""
    while True:
        pending = [one for one in (client, server) if isinstance(one, ssl.SSLSocket) and one.pending()]
        for source in pending or select.select([client, server], [], [])[0]:
            source.settimeout(0)  # what came may be of TLS itself, and no data at all
            try:
                data = source.recv(65536)
            except ssl.SSLWantReadError:
                continue
            if not data:
                return
            to = server if source is client else client
            if source is client:
                keep(data)
            to.settimeout(20)
            to.sendall(data)


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)

        def accept() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            ended.set()
            thread.join()

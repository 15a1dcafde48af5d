"""The certificate a kubelet serves right now: one TLS handshake, checked against the authority of kubelets.

The node itself says where its kubelet is, so what answers there is believed only with a certificate that authority
signed; names are then compared by whoever decides. Nothing is sent but the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.join.kubelet_request import spelled
from hostler.join.model import Act, Live, Outcome, RuleName, Verdict
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import CONFIG_MAP, NODE
from hostler.kube.records import NodeAddress, Record

PATIENCE_SECONDS = 5.0
LIVE_SECONDS = 60.0  # a kubelet is asked for its certificate no more often than this
LIVE_MOST = 20  # kubelets asked in one pass
KUBELET_PORT = 10250
ROOT_CA = ("kube-system", "kube-root-ca.crt", "ca.crt")


class _Endpoint(Record, frozen=True, rename=None):
    Port: int = 0  # so spelled by Kubernetes


class _Daemons(Record, frozen=True):
    kubelet_endpoint: _Endpoint = _Endpoint()


class _Status(Record, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: _Daemons = _Daemons()


class _Node(Record, frozen=True):
    status: _Status = _Status()


class _Map(Record, frozen=True):
    data: dict[str, str] | None = None


async def read_kubelet_authority(client: Client, path: str) -> Fact[str]:
    """The CA of kubelets' certificates as PEM: from a file, else the cluster's own."""
    if path:
        try:
            return Known(Path(path).read_text(encoding="ascii"), 0.0)
        except (OSError, UnicodeDecodeError) as error:
            return Unknown(f"HOSTLER_JOIN_KUBELET_CA {path} cannot be read: {error}")
    namespace, name, key = ROOT_CA
    try:
        found = await client.get(CONFIG_MAP, name, namespace, type=_Map)
    except (ApiError, Unreachable) as error:
        return Unknown(f"the CA of kubelets cannot be read: {error}")
    text = (found.data or {}).get(key, "")
    return Known(text, 0.0) if text else Unknown(f"ConfigMap {namespace}/{name} has no {key}")


class ServedCertificates:
    """What kubelets serve, for the requests that may be renewals; each is asked no more often than once a minute."""

    def __init__(self, client: Client, ca_path: str) -> None:
        """`ca_path`: the file with the CA of kubelets; empty: the cluster's own."""
        self._client, self._ca_path = client, ca_path
        self._asked: dict[str, tuple[Instant, Fact[Live]]] = {}  # by uid of the request

    @property
    def answers(self) -> dict[str, Fact[Live]]:
        """By uid of the request."""
        return {uid: fact for uid, (_, fact) in self._asked.items()}

    def forget_all_but(self, uids: Collection[str]) -> None:
        self._asked = {uid: asked for uid, asked in self._asked.items() if uid in uids}

    async def ask(self, verdicts: Iterable[Verdict], now: Instant) -> bool:
        """Ask the kubelets of requests that may be renewals; False: there is none to ask now."""
        due = [verdict for verdict in verdicts if may_be_renewal(verdict) and self._is_due(verdict.uid, now)]
        if not due:
            return False
        ca = await read_kubelet_authority(self._client, self._ca_path)
        nodes = kubelets_to_ask(due, {uid: at for uid, (at, _) in self._asked.items()})
        served = await asyncio.gather(*(read_served_certificate(self._client, node, ca, now) for node in nodes))
        answers = dict(zip(nodes, served, strict=True))
        self._asked |= {verdict.uid: (now, answers[verdict.node]) for verdict in due if verdict.node in answers}
        return True

    def _is_due(self, uid: str, now: Instant) -> bool:
        before = self._asked.get(uid)
        return before is None or now - before[0] >= LIVE_SECONDS


async def read_served_certificate(client: Client, node: str, ca: Fact[str], now: Instant) -> Fact[Live]:
    """What the kubelet of this node serves; unknown without an authority to check it by."""
    return ca if isinstance(ca, Unknown) else await _served(client, node, ca.value, now)


async def _served(client: Client, node: str, ca: str, now: Instant) -> Fact[Live]:
    try:
        found = await client.get(NODE, node, type=_Node)
    except (ApiError, Unreachable) as error:
        return Unknown(f"node {node} cannot be read: {error}")
    port = found.status.daemon_endpoints.kubelet_endpoint.Port or KUBELET_PORT
    addresses = [address.address for address in found.status.addresses if address.type == "InternalIP"]
    if not addresses:
        return Unknown(f"node {node} has no internal address")
    try:
        tls = ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        return Unknown(f"the CA of kubelets cannot be used: {error}")
    tls.check_hostname = False  # its names are compared with the request's, all of them
    return await _handshake(addresses[0], port, tls, now)


async def _handshake(host: str, port: int, tls: ssl.SSLContext, now: Instant) -> Fact[Live]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=tls)
    except TimeoutError:
        return Unknown(f"{host}:{port} did not answer within {PATIENCE_SECONDS:g} s")
    except ssl.SSLError as error:
        return Unknown(f"{host}:{port} serves no certificate of this cluster's kubelets ({error.reason})")
    except OSError as error:
        return Unknown(f"{host}:{port} does not answer ({error.strerror or error})")
    except (ValueError, OverflowError) as error:  # a port or a name that the kubelet gave and that is none
        return Unknown(f"{host[:100]}:{port} is no address ({error})")
    try:
        carried = writer.get_extra_info("ssl_object")
        read = x509.load_der_x509_certificate(carried.getpeercert(binary_form=True))
    except ValueError as error:
        return Unknown(f"{host}:{port} serves a certificate that cannot be read ({error})")
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)
    return _live(read, now)


def _live(read: x509.Certificate, now: Instant) -> Fact[Live]:
    common = [str(attribute.value) for attribute in read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return Unknown("its kubelet's certificate names nothing")
    if len(common) != 1:
        return Unknown("its kubelet's certificate does not have exactly one common name")
    dns = frozenset(spelled(name) for name in names.get_values_for_type(x509.DNSName))
    ips = frozenset(str(address) for address in names.get_values_for_type(x509.IPAddress))
    return Known(Live(common[0], dns, ips), now)


def kubelets_to_ask(due: Sequence[Verdict], asked: Mapping[str, Instant]) -> list[str]:
    """The nodes whose kubelets are asked in this pass; `asked`: when, by request.

    Whoever was not asked for longest first. Each node once, however many requests it makes: it crowds out no other.
    """
    longest = sorted(due, key=lambda verdict: asked.get(verdict.uid, 0.0))
    return list(dict.fromkeys(verdict.node for verdict in longest))[:LIVE_MOST]


def may_be_renewal(verdict: Verdict) -> bool:
    """Only the names are in doubt: then what the kubelet serves now may tell."""
    doubts = {rule.name for rule in verdict.rules if rule.outcome is not Outcome.HOLDS}
    return verdict.serving and verdict.act in (Act.LEAVE, Act.WAIT) and doubts == {RuleName.OWN_NAMES}

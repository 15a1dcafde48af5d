"""Who asks the read API, and whether the request alone says enough to answer it. Pure.

Nothing in a request is believed because the caller wrote it. Host and forwarding headers can only take the exemption of
loopback away: a page in a browser on this machine, or a reverse proxy beside us, must not lend it to others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

READER = "hostler-reader"  # the ServiceAccount in the operator's namespace whose token people bring; it has no rights
AUDIENCE = "hostler-read"
TOKEN_HEADER = "X-Hostler-Token"  # nosec B105 # the name of a header
OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # for the kubelet's probes
METRICS_PATH = "/metrics"
LONGEST_TOKEN = 8192
FORWARDING = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip")


class Refusal(StrEnum):
    """Why a caller gets no answer: the word on the wire and in the metric."""

    NO_CREDENTIAL = "NoCredential"
    BAD_CREDENTIAL = "BadCredential"
    NOT_ALLOWED = "NotAllowed"
    UNVERIFIED = "Unverified"
    REVIEW_FORBIDDEN = "ReviewForbidden"
    TOO_MANY_ATTEMPTS = "TooManyAttempts"
    NO_SESSION = "NoSession"
    NO_PICTURE = "NoPicture"


STATUS = {
    Refusal.NO_CREDENTIAL: 401,
    Refusal.BAD_CREDENTIAL: 401,
    Refusal.NOT_ALLOWED: 403,
    Refusal.UNVERIFIED: 503,
    Refusal.REVIEW_FORBIDDEN: 503,
    Refusal.TOO_MANY_ATTEMPTS: 429,
    Refusal.NO_SESSION: 401,
    Refusal.NO_PICTURE: 403,
}
SENTENCES = {
    Refusal.NO_CREDENTIAL: "The operator answers only callers that it knows, and this request brings no credential.",
    Refusal.BAD_CREDENTIAL: (
        f"The operator does not accept this credential: {TOKEN_HEADER} must be a valid token of its own {READER} for "
        f"the audience {AUDIENCE}, a bearer token must be valid for the API server."
    ),
    Refusal.NOT_ALLOWED: (
        'The bearer token is valid, but its user lacks the right "get" on this path (nonResourceURLs); ClusterRole '
        "hostler-metrics-reader has it for /metrics."
    ),
    Refusal.UNVERIFIED: "The operator cannot check who asks, so it answers nobody: the API server does not answer it.",
    Refusal.REVIEW_FORBIDDEN: (
        "The operator cannot check who asks, so it answers nobody: it may not create "
        "tokenreviews.authentication.k8s.io or subjectaccessreviews.authorization.k8s.io (`hostler rights`)."
    ),
    Refusal.NO_SESSION: "Log in: this page shows the fleet only to those who may see it.",
    Refusal.NO_PICTURE: (
        'The token is valid, but its user lacks the right "get" on "fleets/picture" (hostler.dev); ClusterRole '
        "hostler-viewer has it, which view contains."
    ),
    Refusal.TOO_MANY_ATTEMPTS: "Too many credentials wait to be checked or were wrong; try again in some seconds.",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """One request, as far as it says who asks. `peer` and `local` are the two ends of its connection."""

    path: str
    peer: str
    local: str
    host: str = ""  # the header
    forwarded: bool = False
    tokens: tuple[str, ...] = ()
    authorizations: tuple[str, ...] = ()


class Proof(StrEnum):
    """What kind of credential it is: the token of our reader, a bearer token of anyone, or the same of a session."""

    READER = "reader"
    BEARER = "bearer"
    SESSION = "session"  # a bearer token that came with a login on the page


@dataclass(frozen=True, slots=True)
class Credential:
    proof: Proof
    token: str

    def __repr__(self) -> str:
        return f"Credential({self.proof})"  # never the token: this may end up in a log


def address_of(end: object) -> str:
    """Of one end of a connection; empty where there is none, as of a Unix socket or one that is closed already."""
    return str(end[0]) if isinstance(end, tuple) and end else ""


def is_open(caller: Caller, *, metrics_open: bool) -> bool:
    """Whether the request is answered without a credential."""
    if caller.path in OPEN_PATHS or (metrics_open and caller.path == METRICS_PATH):
        return True
    return is_local(caller)


def is_local(caller: Caller) -> bool:
    """Whether a process of this machine (in a pod: of this pod) asks by itself, over loopback."""
    return (
        is_loopback(caller.peer)
        and is_loopback(caller.local)
        and not caller.forwarded
        and (not caller.host or names_loopback(caller.host))
    )


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped  # a socket of both families shows IPv4 peers so
    return found.is_loopback


def names_loopback(host: str) -> bool:
    """Of a Host header. A page that made its own name point at 127.0.0.1 sends that name."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or is_loopback(name)


def credential_of(caller: Caller) -> Credential | Refusal:
    """The one credential that counts. A wrong token of our own header is not made good by an Authorization header."""
    if caller.tokens:
        return _credential(Proof.READER, caller.tokens)
    if not caller.authorizations:
        return Refusal.NO_CREDENTIAL
    scheme, _, token = caller.authorizations[0].partition(" ")
    if len(caller.authorizations) > 1 or scheme.lower() != "bearer":
        return Refusal.BAD_CREDENTIAL
    return _credential(Proof.BEARER, (token.strip(),))


def session_credential(token: str) -> Credential | Refusal:
    """Of a login on the page."""
    return _credential(Proof.SESSION, (token,))


def _credential(proof: Proof, values: Sequence[str]) -> Credential | Refusal:
    token = values[0]
    fine = len(values) == 1 and 0 < len(token) <= LONGEST_TOKEN and token.isascii() and not set(token) & set(" \t,")
    return Credential(proof, token) if fine else Refusal.BAD_CREDENTIAL

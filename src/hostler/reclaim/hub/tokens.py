"""Short-lived tokens that open one thing: one host's instructions, or registration in one InfraEnv. Pure.

A compact JWS with EdDSA. The signing key is in a Secret, so every replica can check what another one issued. What a
token opens is inside it and signed; there is nothing to look up and nothing to forget.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from hostler.instant import Instant

LONGEST = 4096
REMEMBERED = 4096  # tokens whose signature was good: a host asks with the same one for hours
_HEADER = base64.urlsafe_b64encode(b'{"alg":"EdDSA","typ":"JWT"}').rstrip(b"=").decode()


class Opens(StrEnum):
    HOST = "host"  # GET and POST of one host's instructions; never a registration
    INFRA_ENV = "infra-env"  # registration in one InfraEnv; no host's instructions


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a token opens, and until when. `infra_env` is the InfraEnv's uid, as in the paths of the API."""

    opens: Opens
    namespace: str
    infra_env: str
    infra_env_name: str
    host: str  # the Agent's name; empty for an InfraEnv's token
    exp: float
    id: str


class Denial(StrEnum):
    """Why a token does not open something."""

    NONE = "none"
    NOT_OURS = "not-ours"
    EXPIRED = "expired"
    OTHER_USE = "other-use"
    OTHER_INFRA_ENV = "other-infra-env"
    OTHER_HOST = "other-host"


_SENTENCES = {
    Denial.NONE: "There is no token; the header is X-Secret-Key.",
    Denial.NOT_OURS: "This is not a token of this hub.",
    Denial.EXPIRED: "The token has expired.",
    Denial.OTHER_USE: "This token opens {opens}, not {asked}.",
    Denial.OTHER_INFRA_ENV: "This token is for another InfraEnv.",
    Denial.OTHER_HOST: "This token is for another host.",
}


@dataclass(frozen=True, slots=True)
class Denied:
    """The token does not open this."""

    reason: Denial
    opens: str = ""
    asked: str = ""

    @property
    def status(self) -> int:
        """401: it is no valid token; 403: it is one, for something else."""
        return 401 if self.reason in (Denial.NONE, Denial.NOT_OURS, Denial.EXPIRED) else 403

    @property
    def why(self) -> str:
        return _SENTENCES[self.reason].format(opens=self.opens, asked=self.asked)


class Keys:
    """The signing key of this hub."""

    def __init__(self, pem: bytes) -> None:
        key = load_pem_private_key(pem, None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("the signing key is not an Ed25519 key")
        self._key = key
        self._public: Ed25519PublicKey = key.public_key()
        self._good: dict[str, Claims] = {}

    @staticmethod
    def make() -> bytes:
        """A new key, as it is kept in the Secret."""
        return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def for_host(
        self, namespace: str, infra_env: str, infra_env_name: str, host: str, *, now: Instant, seconds: float
    ) -> str:
        return self._issue(
            Claims(Opens.HOST, namespace, infra_env, infra_env_name, host, now + seconds, secrets.token_hex(8))
        )

    def for_infra_env(
        self, namespace: str, infra_env: str, infra_env_name: str, *, now: Instant, seconds: float
    ) -> str:
        return self._issue(
            Claims(Opens.INFRA_ENV, namespace, infra_env, infra_env_name, "", now + seconds, secrets.token_hex(8))
        )

    def _issue(self, claims: Claims) -> str:
        signed = f"{_HEADER}.{_encode(msgspec.json.encode(claims))}"
        return f"{signed}.{_encode(self._key.sign(signed.encode()))}"

    def check(self, token: str, opens: Opens, infra_env: str, host: str, now: Instant) -> Claims | Denied:
        """The claims of a token that opens exactly this, or why it does not."""
        claims = self._read(token, now)
        if isinstance(claims, Denied):
            return claims
        if claims.opens is not opens:
            return Denied(Denial.OTHER_USE, claims.opens, opens)
        if claims.infra_env != infra_env:
            return Denied(Denial.OTHER_INFRA_ENV)
        if opens is Opens.HOST and claims.host != host:
            return Denied(Denial.OTHER_HOST)
        return claims

    def check_infra_env(self, token: str, infra_env: str, now: Instant) -> Claims | Denied:
        """Any token of this InfraEnv, a host's or its own: enough for what its hosts boot with."""
        claims = self._read(token, now)
        if isinstance(claims, Claims) and claims.infra_env != infra_env:
            return Denied(Denial.OTHER_INFRA_ENV)
        return claims

    def _read(self, token: str, now: Instant) -> Claims | Denied:
        claims = self._good.get(token) or self._verified(token)
        if isinstance(claims, Denied):
            return claims
        if token not in self._good:
            if len(self._good) >= REMEMBERED:
                del self._good[next(iter(self._good))]
            self._good[token] = claims
        if now >= claims.exp:
            return Denied(Denial.EXPIRED)
        return claims

    def _verified(self, token: str) -> Claims | Denied:
        """What a token of ours says, whether or not that is still so. It depends on the token and our key alone."""
        if not token:
            return Denied(Denial.NONE)
        header, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        # Only our own header, byte for byte: a token does not get to say how it is to be checked.
        if len(token) > LONGEST or not token.isascii() or header != _HEADER:
            return Denied(Denial.NOT_OURS)
        try:
            self._public.verify(_decode(signature), f"{header}.{body}".encode())
            return msgspec.json.decode(_decode(body), type=Claims)
        except (InvalidSignature, binascii.Error, ValueError, msgspec.DecodeError):
            return Denied(Denial.NOT_OURS)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    data = base64.b64decode(padded, altchars=b"-_", validate=True)
    if _encode(data) != text:  # one spelling only
        raise ValueError("not the one spelling of these bytes")
    return data

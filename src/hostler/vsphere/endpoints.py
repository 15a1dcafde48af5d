"""Which vCenters there are and how to be let in: from the settings, and from a file for more than one.

A password may stand in a file (a mounted Secret); files are read again at every login, so a rotated Secret needs no
restart. A certificate is verified by a CA where a setting names one; else it is compared with the configured
fingerprints, or with what was remembered at the first contact. Not at all only with VCENTER_TLS_PIN=false.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from hostler.documents import NotReadable, read_yaml
from hostler.errors import Complaint, Exit
from hostler.fingerprints import read_fingerprint
from hostler.settings.model import Settings
from hostler.vsphere.pinned_tls import pinned_context
from hostler.vsphere.pins import Pin
from hostler.vsphere.settings import (
    VCENTER_CA_BUNDLE,
    VCENTER_CERTIFICATE_SHA256,
    VCENTER_HOST,
    VCENTER_PASSWORD,
    VCENTER_PASSWORD_FILE,
    VCENTER_TLS_PIN,
    VCENTER_TLS_VERIFY,
    VCENTER_USER,
    VCENTER_USER_FILE,
    VCENTERS_FILE,
)

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_KEYS = ("host", "user", "userFile", "password", "passwordFile", "caBundle", "tlsVerify", "certificateSha256",
         "tlsPin")  # fmt: skip
_NOTHING = Pin(())  # every certificate is another one


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password as they are now. Two are compared to see whether the credential changed."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One vCenter. `origin` says where it was configured, for sentences."""

    host: str
    port: int = 443
    user: str = ""
    password: str = field(default="", repr=False)
    user_file: str = ""
    password_file: str = ""
    ca_bundle: str = ""
    tls_verify: bool = False
    certificate_sha256: tuple[str, ...] = ()
    tls_pin: bool = True
    origin: str = "VCENTER_"

    @property
    def name(self) -> str:
        """How it is called in logs, metrics and sentences; `parse_host` reads it."""
        host = f"[{self.host}]" if ":" in self.host and self.port != 443 else self.host
        return host if self.port == 443 else f"{host}:{self.port}"

    @property
    def verified(self) -> bool:
        """By a CA or by fingerprints that a setting names."""
        return bool(self.ca_bundle or self.certificate_sha256) or self.tls_verify

    @property
    def pinned(self) -> bool:
        """Trusted on first use: its certificate is remembered at the first contact and compared from then on."""
        return self.tls_pin and not self.verified

    def login(self) -> Login:
        """The credential, files read now. A file wins over a value. Raises Complaint naming the file."""
        user = _secret(self.user_file, self.origin) if self.user_file else self.user
        password = _secret(self.password_file, self.origin) if self.password_file else self.password
        return Login(user, password)

    def tls(self, pin: Pin = _NOTHING) -> ssl.SSLContext:
        """How this vCenter's certificate is checked; the bundle is read now. Raises Complaint naming the file.

        `pin` is what was remembered of one that is `pinned`; without it every certificate is refused.
        """
        if self.ca_bundle:
            return _bundle(self.ca_bundle, self.origin)
        if self.certificate_sha256:
            return pinned_context(Pin(self.certificate_sha256))
        if self.pinned:
            return pinned_context(pin)
        context = ssl.create_default_context()
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def warning(self) -> str:
        """What to say once at start; "" where there is nothing to warn of."""
        if self.verified or self.pinned:
            return ""
        return (
            f"The certificate of vCenter {self.name} is not verified: an attacker in between can read the password. "
            "Unset VCENTER_TLS_PIN, or set VCENTER_CA_BUNDLE to its CA."
        )


def endpoints(settings: Settings) -> tuple[Endpoint, ...]:
    """Every configured vCenter, the environment's first. Raises one Complaint that lists every mistake."""
    problems: list[str] = []
    found: list[Endpoint] = []
    if settings[VCENTER_HOST]:
        given = {
            "host": settings[VCENTER_HOST],
            "user": settings[VCENTER_USER],
            "userFile": settings[VCENTER_USER_FILE],
            "password": settings[VCENTER_PASSWORD],
            "passwordFile": settings[VCENTER_PASSWORD_FILE],
            "caBundle": settings[VCENTER_CA_BUNDLE],
            "tlsVerify": settings[VCENTER_TLS_VERIFY],
            "certificateSha256": settings[VCENTER_CERTIFICATE_SHA256],
            "tlsPin": settings[VCENTER_TLS_PIN],
        }
        found += _endpoint(given, "VCENTER_", problems)
    if settings[VCENTERS_FILE]:
        found += _from_file(settings[VCENTERS_FILE], problems)
    names = [one.name for one in found]
    problems += [
        f"vCenter {name} is configured more than once." for name in sorted(set(names)) if names.count(name) > 1
    ]
    for one in found:
        for check in (one.login, one.tls):
            try:
                check()
            except Complaint as complaint:
                problems.append(complaint.sentence)
    if problems:
        lines = (
            problems[0] if len(problems) == 1 else "\n".join(("Several are wrong:", *(f"  - {p}" for p in problems)))
        )
        raise Complaint(lines, hint="Nothing was started.", code=Exit.SETTING)
    return tuple(found)


def _from_file(path: str, problems: list[str]) -> list[Endpoint]:
    try:
        document = read_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"VCENTERS_FILE {path} cannot be read: {error}.")
        return []
    except NotReadable as error:
        problems.append(f"VCENTERS_FILE {path} {error}.")
        return []
    items = document.get("vcenters") if isinstance(document, dict) else None
    if not isinstance(items, list) or set(document) != {"vcenters"}:
        problems.append(f"VCENTERS_FILE {path} must hold one key, vcenters, with a list.")
        return []
    found: list[Endpoint] = []
    for index, item in enumerate(items):
        origin = f"VCENTERS_FILE {path}: vcenters[{index}]."
        if isinstance(item, dict):
            found += _endpoint(item, origin, problems)
        else:
            problems.append(f"{origin[:-1]} must be a mapping with at least host, user and password.")
    return found


def _endpoint(given: Mapping[str, Any], origin: str, problems: list[str]) -> list[Endpoint]:
    """One endpoint, or none and its mistakes."""

    def called(key: str) -> str:
        """The setting's own name: VCENTER_CA_BUNDLE in the environment, `...vcenters[1].caBundle` in the file."""
        spelled = re.sub(r"([A-Z])", r"_\1", key).upper() if origin == "VCENTER_" else key
        return origin + spelled

    wrong = [f"{called(str(key))} is not known; known are {', '.join(_KEYS)}." for key in given if key not in _KEYS]
    switches = {"tlsVerify": given.get("tlsVerify", False), "tlsPin": given.get("tlsPin", True)}
    text = {key: given.get(key) or "" for key in _KEYS if key not in (*switches, "certificateSha256")}
    wrong += [f"{called(key)} must be text." for key, value in text.items() if not isinstance(value, str)]
    wrong += [f"{called(key)} must be true or false." for key, on in switches.items() if not isinstance(on, bool)]
    fingerprints = _fingerprints(given.get("certificateSha256"), called("certificateSha256"), wrong)
    against = [key for key, yes in (("caBundle", text["caBundle"]), ("tlsVerify", switches["tlsVerify"]),
                                    ("tlsPin", not switches["tlsPin"])) if yes]  # fmt: skip
    if fingerprints and against:
        wrong.append(f"{called('certificateSha256')} and {called(against[0])} exclude each other.")
    where = parse_host(str(text["host"]))
    if where is None:
        wrong.append(f'{called("host")} is "{text["host"]}", but must be a name or an address, with :PORT if not 443.')
    for one in ("user", "password"):
        if not text[one] and not text[f"{one}File"]:
            wrong.append(f"{called(one)} is missing; give it, or a file with it as {called(f'{one}File')}.")
    problems += wrong
    if wrong or where is None:
        return []
    host, port = where
    files = {"user_file": text["userFile"], "password_file": text["passwordFile"]}
    return [Endpoint(host, port, text["user"], text["password"], **files, ca_bundle=text["caBundle"],
                     tls_verify=switches["tlsVerify"], certificate_sha256=fingerprints, tls_pin=switches["tlsPin"],
                     origin=origin)]  # fmt: skip


def parse_host(text: str) -> tuple[str, int] | None:
    """`NAME`, `NAME:PORT`, `[IPV6]:PORT`, `IPV6`; None for anything else."""
    if _is_ipv6(text.strip()):
        return text.strip(), 443
    where = _HOST.fullmatch(text.strip())
    port = int(where["port"] or 443) if where else 0
    return (where["six"] or where["name"], port) if where and 0 < port < 65536 else None


def _is_ipv6(text: str) -> bool:
    try:
        return bool(IPv6Address(text))
    except ValueError:
        return False


def _fingerprints(given: object, setting: str, wrong: list[str]) -> tuple[str, ...]:
    if given is None:
        return ()
    try:
        if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
            return tuple(dict.fromkeys(read_fingerprint(one) for one in given))
    except ValueError:
        pass
    wrong.append(f"{setting} must be a list of SHA-256 fingerprints.")
    return ()


def _secret(path: str, origin: str) -> str:
    """The text of a mounted Secret's file without the line end that an editor or `echo` left."""
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Complaint(f"{_file_setting(origin)} {path} cannot be read: {error}.", code=Exit.SETTING) from error
    if not text:
        raise Complaint(f"{_file_setting(origin)} {path} is empty.", code=Exit.SETTING)
    return text


def _file_setting(origin: str) -> str:
    return "VCENTER_USER_FILE or VCENTER_PASSWORD_FILE" if origin == "VCENTER_" else f"{origin}userFile or passwordFile"


def _bundle(path: str, origin: str) -> ssl.SSLContext:
    setting = f"{origin}CA_BUNDLE" if origin == "VCENTER_" else f"{origin}caBundle"
    try:
        context = ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise Complaint(f"{setting} {path} holds no certificate in PEM form.", code=Exit.SETTING) from error
    except OSError as error:
        raise Complaint(f"{setting} {path} cannot be read: {error.strerror}.", code=Exit.SETTING) from error
    # vCenter's own certificate, exported as the seed says, is no CA: it counts as the end of the chain all the same.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Newer Pythons refuse certificates of private CAs that leave out extensions; whoever names a bundle trusts it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context

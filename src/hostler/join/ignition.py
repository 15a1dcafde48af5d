"""The Ignition config of a new worker: where the rest of its config is, whom to believe, how its kubelet starts. Pure.

The root CA is the machine config server's and is never made up: without one there is no config.
A kubelet that waits for a cloud provider taints its node until one comes; on a machine that is in no cloud none does.
A drop-in cannot take one flag away, only replace the whole command: so it is made from the cluster's own unit, or not.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

VERSION = "3.2.0"
PORT = 22623


def server_of(cluster_domain: str, api_vip: str = "") -> str:
    """HOST:PORT of the machine config server: the first API VIP where there is one, else the internal API name."""
    if not api_vip:
        return f"api-int.{cluster_domain}:{PORT}"
    address = ipaddress.ip_address(api_vip)
    return f"[{address}]:{PORT}" if address.version == 6 else f"{address}:{PORT}"


def pointer(server: str, root_ca: bytes, *, role: str = "worker", drop_in: str = "") -> dict[str, Any]:
    """The config a new machine boots with. `root_ca` is PEM, one certificate or several; empty fields are left out.

    `drop_in` is for the kubelet's unit, which is in the config pointed at: Ignition merges units by their name.
    """
    encoded = base64.b64encode(root_ca).decode()
    unit = {"name": KUBELET_UNIT, "dropins": [{"name": DROP_IN_NAME, "contents": drop_in}]}
    return {
        "ignition": {
            "version": VERSION,
            "config": {"merge": [{"source": f"https://{server}/config/{role}"}]},
            "security": {
                "tls": {"certificateAuthorities": [{"source": f"data:text/plain;charset=utf-8;base64,{encoded}"}]}
            },
        },
        **({"systemd": {"units": [unit]}} if drop_in else {}),
    }


def written(config: dict[str, Any]) -> bytes:
    """As the file holds it: the same input gives the same bytes, so that its hash can be given to an installer."""
    return json.dumps(config, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def digest(content: bytes) -> str:
    """As `--ignition-hash` wants it."""
    return f"sha512-{hashlib.sha512(content).hexdigest()}"


def installer_line(device: str, *, url: str = "", file: str = "", hash: str = "") -> str:
    """The command to run on the live system. Over plain HTTP the hash vouches for the content, so it must be given.

    coreos-installer needs --insecure-ignition only for a URL with neither HTTPS nor a hash.
    """
    words = ["coreos-installer", "install", device]
    if url:
        if url.startswith("http://") and not hash:
            raise ValueError("a config fetched over plain HTTP needs its hash")
        words.append(f"--ignition-url={url}")
        if hash:
            words.append(f"--ignition-hash={hash}")
    else:
        words.append(f"--ignition-file={file}")
    return shlex.join([*words, "--platform=metal"])


def unfit(pem: bytes) -> list[str]:
    """Why these bytes are no root CA for a config, each as the rest of a sentence; none: they are one, or several.

    A wrong one would keep every new worker from joining, and what is in a config is seen by whoever can fetch it.
    """
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ["holds no certificate in PEM"]
    wrong = ["holds a private key, which must not get into an ignition file"] if b"PRIVATE KEY" in pem else []
    leaves = (certificate.subject.rfc4514_string() for certificate in found if not _is_ca(certificate))
    return [*wrong, *(f"holds a certificate that is not a CA ({name})" for name in leaves)]


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def read_pointer(config: Any) -> tuple[str, bytes]:
    """The server (HOST:PORT) and the root CAs of a cluster's pointer config. Raises ValueError, saying what is odd."""
    try:
        ignition = config["ignition"]
        source = ignition["config"]["merge"][0]["source"]
        listed = [str(authority["source"]) for authority in ignition["security"]["tls"]["certificateAuthorities"]]
    except (KeyError, IndexError, TypeError):
        raise ValueError("it is no pointer config with a root CA") from None
    parts = urlsplit(str(source))
    datas = [url.partition(",") for url in listed]
    carried = all(comma and head.endswith(";base64") for head, comma, _ in datas)
    if parts.scheme != "https" or not parts.netloc or not carried:
        raise ValueError("it does not point at a machine config server over https with its CA as data")
    root_ca = b"\n".join(base64.b64decode(encoded, validate=True) for _, _, encoded in datas)
    if wrong := unfit(root_ca):
        raise ValueError(f"its root CA {wrong[0]}")
    return parts.netloc, root_ca


KUBELET_UNIT = "kubelet.service"
DROP_IN_NAME = "90-hostler-no-cloud-provider.conf"  # after any of the cluster's own

_FLAG = re.compile(r"(?:(?<=\s)|^)--cloud-(provider|config)(?:=(\S*)|\s+(\S+))(?=\s|$)")


def make_drop_in(unit: str, others: Sequence[str] = ()) -> str:
    """The drop-in's text; empty where the kubelet has no cloud provider anyway.

    `others` are the drop-ins the unit has already. Raises ValueError, saying what of the unit is not understood.
    """
    if any(list(_commands(other)) for other in others):
        raise ValueError(f"another drop-in of {KUBELET_UNIT} replaces its command")
    found = list(_commands(unit))
    if len(found) != 1:
        raise ValueError(f"{KUBELET_UNIT} has {len(found)} commands to start with, and one was expected")
    command = found[0]
    providers = [
        flag[2] if flag[2] is not None else flag[3] for flag in _FLAG.finditer(command) if flag[1] == "provider"
    ]
    left = _FLAG.sub("", command)
    if (
        "--cloud-provider" in left
        or "--cloud-config" in left
        or any(set("\"'\\") & set(provider) for provider in providers)
    ):
        raise ValueError(f"{KUBELET_UNIT} spells its cloud provider in a way that is not understood")
    if not any(providers):
        return ""
    lines = (
        "# This machine is in no cloud: nobody would take the uninitialized taint from its node.",
        "[Service]",
        "ExecStart=",
        f"ExecStart={left.strip()}",
    )
    return "\n".join(lines) + "\n"


def _commands(text: str) -> Iterator[str]:
    """What ExecStart says in [Service], as systemd reads it: lines joined, comments left out, empty forgets."""
    section, commands = "", list[str]()
    for line in _lines(text):
        if line.startswith("["):
            section = line
        key, equals, value = line.partition("=")
        if section == "[Service]" and equals and key.strip() == "ExecStart":
            commands = [*commands, value.strip()] if value.strip() else []
    yield from commands


def _lines(text: str) -> Iterator[str]:
    begun = ""
    for line in text.splitlines():
        if line.strip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            begun += line[:-1] + " "
        else:
            yield (begun + line).strip()
            begun = ""
    if begun:
        yield begun.strip()

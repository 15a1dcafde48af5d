"""The Ignition pointer config of a new worker: where the rest of its config is, and whom to believe. Pure.

The root CA is the machine config server's and is never made up: without one there is no config.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from typing import Any

VERSION = "3.2.0"
PORT = 22623


def server_of(cluster_domain: str, api_vip: str = "") -> str:
    """HOST:PORT of the machine config server: the first API VIP where there is one, else the internal API name."""
    if not api_vip:
        return f"api-int.{cluster_domain}:{PORT}"
    address = ipaddress.ip_address(api_vip)
    return f"[{address}]:{PORT}" if address.version == 6 else f"{address}:{PORT}"


def pointer(server: str, root_ca: bytes, *, role: str = "worker") -> dict[str, Any]:
    """The config a new machine boots with. `root_ca` is PEM, one certificate or several; empty fields are left out."""
    encoded = base64.b64encode(root_ca).decode()
    return {
        "ignition": {
            "version": VERSION,
            "config": {"merge": [{"source": f"https://{server}/config/{role}"}]},
            "security": {
                "tls": {"certificateAuthorities": [{"source": f"data:text/plain;charset=utf-8;base64,{encoded}"}]}
            },
        }
    }


def written(config: dict[str, Any]) -> bytes:
    """As the file holds it: the same input gives the same bytes, so that its hash can be given to an installer."""
    return json.dumps(config, separators=(",", ":"), sort_keys=True).encode() + b"\n"

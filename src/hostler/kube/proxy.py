"""Which HTTP proxy leads to an API server: the kubeconfig's, else the environment's, by Go's rules."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from hostler.kube.kubeconfig import wrong


def check_proxy(url: str, about: str) -> str:
    """`url` if we can use it."""
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https") or not urlsplit(url).hostname:
        hint = "Only http:// and https:// proxies are supported; a SOCKS proxy needs an HTTP one in front."
        raise wrong(f"{about}: {url!r} is not a proxy we can use", hint)
    return url


def proxy_from_environment(server: str, environment: Mapping[str, str] | None = None) -> str | None:
    """HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY or being this very machine speaks against it."""
    env = os.environ if environment is None else environment
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    url = env.get(name.upper()) or env.get(name) or ""
    host = (parts.hostname or "").lower()
    if (
        not url
        or not host
        or _is_here(host)
        or _excepted(host, parts.port, env.get("NO_PROXY") or env.get("no_proxy") or "")
    ):
        return None
    return check_proxy(url if "://" in url else f"http://{url}", f"environment variable {name.upper()}")


def _excepted(host: str, port: int | None, exceptions: str) -> bool:
    address = _address(host)
    for rule in (part.strip().lower() for part in exceptions.split(",")):
        if rule == "*":
            return True
        rule, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
        if not rule or (rule_port and rule_port != str(port)):
            continue
        if address is not None:
            if _covers(rule, address):
                return True
        elif host == rule or host.endswith("." + rule.lstrip("*").lstrip(".")):
            return True  # `.example.com` covers only what is below it, `example.com` itself too
    return False


def _covers(rule: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False


def _is_here(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

"""Reading objects of a sandbox by the names kubectl knows them by, without starting a process for each look."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from hostler.sandbox import http

EVERYTHING = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class Resource:
    base: str
    plural: str
    namespaced: bool

    def path(self, name: str, namespace: str | None, query: dict[str, str]) -> str:
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        single = f"/{quote(name, safe='')}" if name else ""
        asked = f"?{urlencode(query)}" if query else ""
        return f"{self.base}{inside}/{self.plural}{single}{asked}"


def path_of(port: int, tls: ssl.SSLContext, known: dict[str, Resource], args: tuple[str, ...]) -> str | None:
    """Where `kubectl get ARGS` would look; None for what only kubectl can say (several kinds, other flags)."""
    words, query, namespace = list(args), {}, "default"
    plain = []
    while words:
        match words.pop(0):
            case "-n" if words:
                namespace = words.pop(0)
            case "-l" if words:
                query["labelSelector"] = words.pop(0)
            case "-A":
                namespace = ""
            case word if word.startswith("--field-selector="):
                query["fieldSelector"] = word.partition("=")[2]
            case word if word.startswith("-"):
                return None
            case word:
                plain.append(word)
    if len(plain) not in (1, 2) or "," in plain[0] or "/" in plain[0]:
        return None
    if plain[0] not in known:
        known.clear()
        known.update(_served(port, tls))
    name = plain[1] if len(plain) == 2 else ""
    return known[plain[0]].path(name, namespace, query) if plain[0] in known else None


def _served(port: int, tls: ssl.SSLContext) -> dict[str, Resource]:
    """Every resource by its plural, singular, short names and with its group; the first one served keeps a name."""
    known: dict[str, Resource] = {}
    for root in ("/api", "/apis"):
        answer = http.ask("The API server", port, "GET", root, tls=tls, accept=EVERYTHING)
        for group in answer["items"]:
            for name, resource in _of_group(root, group):
                known.setdefault(name, resource)
    return known


def _of_group(root: str, group: dict[str, Any]) -> Iterator[tuple[str, Resource]]:
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        base = "/".join(filter(None, (root, name, version["version"])))
        for one in version.get("resources", ()):
            resource = Resource(base, one["resource"], one["scope"] == "Namespaced")
            names = (one["resource"], one.get("singularResource", ""), *one.get("shortNames", ()))
            for word in filter(None, names):
                yield word, resource
                yield f"{word}.{name}", resource

"""What an image is made of, as SPDX 2.3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hostler.ship.oci import EPOCH


@dataclass(frozen=True, slots=True)
class Part:
    """One package in the image. `url`: its package URL."""

    name: str
    version: str
    licence: str = "NOASSERTION"
    url: str = ""

    @property
    def id(self) -> str:
        return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", f"{self.name}-{self.version}")


def document(parts: Sequence[Part], digest: str) -> bytes:
    """The same parts give the same bytes."""
    made = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"hostler@{digest}",
        "documentNamespace": f"https://hostler.dev/sbom/{digest.replace(':', '/')}",
        "creationInfo": {"created": EPOCH, "creators": ["Tool: hostler.ship.image"]},
        "packages": [_package(part) for part in parts],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": part.id}
            for part in parts
        ],
    }
    return msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"


def _package(part: Part) -> dict[str, object]:
    made: dict[str, object] = {
        "SPDXID": part.id, "name": part.name, "versionInfo": part.version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": part.licence,
        "copyrightText": "NOASSERTION",
    }  # fmt: skip
    if part.url:
        reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.url}
        made["externalRefs"] = [reference]
    return made

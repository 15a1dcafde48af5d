"""In which versions the API server may still hold objects of the provider's kinds, and how they are rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hostler.explain.doctor import Finding, Level
from hostler.host.conditions import count
from hostler.host.facts import Fact, Unknown
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION
from hostler.kube.records import Metadata, Record
from hostler.metal.kinds.webhook_objects import DEFINITIONS, OLDER, STORED

WHAT = "stored versions"


class _Conversion(Record, frozen=True):
    strategy: str = "None"


class _Version(Record, frozen=True):
    name: str = ""
    storage: bool = False


class _Spec(Record, frozen=True):
    conversion: _Conversion = _Conversion()
    versions: tuple[_Version, ...] = ()


class _Status(Record, frozen=True):
    stored_versions: tuple[str, ...] = ()


class Definition(Record, frozen=True):
    """A CRD of the provider, as far as its versions go."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def storage(self) -> str:
        """The version in which objects are written."""
        return next((one.name for one in self.spec.versions if one.storage), "")

    @property
    def older(self) -> list[str]:
        """The other versions in which there may still be objects."""
        return [one for one in self.status.stored_versions if one != STORED]

    @property
    def may_hold_older(self) -> bool:
        return OLDER in self.status.stored_versions


async def read_definitions(client: Client) -> tuple[Definition, ...]:
    """The CRDs of the provider that are there."""
    found = []
    for name in DEFINITIONS:
        try:
            found.append(await client.get(CUSTOM_RESOURCE_DEFINITION, name, type=Definition))
        except NotFound:
            continue
    return tuple(found)


def rewrite_commands(names: Sequence[str]) -> str:
    """Each object is written as it is, in the version that is stored now; then the CRD may forget the older one."""
    forget = f'{{"status":{{"storedVersions":["{STORED}"]}}}}'
    # kubectl replaces no empty list.
    return (
        f'for crd in {" ".join(names)}; do if [ -n "$(kubectl get $crd -A -o name)" ]; then '
        "kubectl get $crd -A -o json | kubectl replace -f - || break; fi; "
        f"kubectl patch crd $crd --subresource=status --type=merge -p '{forget}'; done"
    )


def stored_version_findings(seen: Fact[Sequence[Definition]], *, on: bool) -> Iterator[Finding]:
    """What `hostler doctor` and `hostler metal takeover --check` say of it; `on`: metal is, or is about to be."""
    if not on:
        return
    if isinstance(seen, Unknown):
        why = f"Cannot tell whether objects are still stored in {OLDER}: {seen.why}"
        yield Finding(Level.WARNING, WHAT, why, "You need `get` on customresourcedefinitions.")
        return
    older = sorted((one for one in seen.value if one.may_hold_older), key=lambda one: one.metadata.name)
    lossy = [one.metadata.name for one in older if one.spec.conversion.strategy != "Webhook"]
    if lossy:
        why = (
            f"Objects of {count(len(lossy), 'CRD')} may be stored in {OLDER}, and no webhook converts them, so fields "
            f"that were renamed are lost whenever they are read: {', '.join(lossy)}."
        )
        mend = f"Let a webhook convert them first (docs/metal-webhooks.md). Then: {rewrite_commands(lossy)}"
        yield Finding(Level.PROBLEM, WHAT, why, mend)
    converted = [one.metadata.name for one in older if one.metadata.name not in lossy]
    if converted:
        why = (
            f"Objects of {count(len(converted), 'CRD')} may be stored in {OLDER}, and each read of one asks a webhook: "
            f"{', '.join(converted)}."
        )
        yield Finding(Level.WARNING, WHAT, why, rewrite_commands(converted))
    if seen.value and not older:
        yield Finding(Level.FINE, WHAT, f"Every object of the Metal3 kinds is stored in {STORED}.")

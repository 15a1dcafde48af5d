"""What is read for data: templates, claims and what is rendered, pools and addresses; and which indexes are taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate, IpAddress, IpClaim
from hostler.kube.cache import Unread, first_unread
from hostler.kube.client import Client
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.watch import Watch
from hostler.metal import names
from hostler.metal.caches import watch_in
from hostler.metal.scope import EVERYTHING, Scope


def owner_datas(claim: IpClaim) -> list[str]:
    """The Metal3Data an address was claimed for, as a key."""
    name = next((one.name for one in claim.metadata.owner_references if one.kind == metal3.METAL3_DATA.kind), "")
    return [names.key(claim.metadata.namespace, name)] if name else []


@dataclass(frozen=True, slots=True)
class DataCaches:
    templates: Watch[DataTemplate]
    claims: Watch[DataClaim]
    datas: Watch[Data]
    pools: Watch[Object]
    ip_claims: Watch[IpClaim]
    ip_addresses: Watch[IpAddress]
    capi_claims: Watch[IpClaim]
    capi_addresses: Watch[IpAddress]

    @classmethod
    def make(cls, client: Client, metrics: Metrics, scope: Scope = EVERYTHING) -> DataCaches:
        def watch(kind: Kind, record: Any, **indexes: Any) -> Watch[Any]:
            return watch_in(scope, client, kind, record, metrics=metrics, indexes=indexes)

        return cls(
            templates=watch(metal3.METAL3_DATA_TEMPLATE, DataTemplate),
            claims=watch(
                metal3.METAL3_DATA_CLAIM, DataClaim,
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
            ),
            datas=watch(
                metal3.METAL3_DATA, Data,
                claim=lambda one: (names.key(one.metadata.namespace, one.spec.claim.name),),
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
                unready=lambda one: () if one.status.ready else (one.metadata.namespace,),
            ),
            pools=watch(metal3.METAL3_IP_POOL, Object),
            ip_claims=watch(metal3.METAL3_IP_CLAIM, IpClaim, data=owner_datas),
            ip_addresses=watch(metal3.METAL3_IP_ADDRESS, IpAddress),
            capi_claims=watch(capi.IP_ADDRESS_CLAIM, IpClaim, data=owner_datas),
            capi_addresses=watch(capi.IP_ADDRESS, IpAddress),
        )  # fmt: skip

    def all(self) -> Iterator[Watch[Any]]:
        yield from (self.templates, self.claims, self.datas, self.pools)
        yield from (self.ip_claims, self.ip_addresses, self.capi_claims, self.capi_addresses)

    def unread(self) -> Unread | None:
        return first_unread(self.all())


class Indexes:
    """Which indexes of each template are taken; the smallest free one is found without looking at them all."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._low: dict[str, int] = {}  # below this, every index is taken

    def take(self, template: str) -> int:
        """The smallest index nobody has; it is taken from now on."""
        taken, index = self._taken.setdefault(template, set()), self._low.get(template, 0)
        while index in taken:
            index += 1
        taken.add(index)
        self._low[template] = index + 1
        return index

    def give_back(self, template: str, index: int) -> None:
        self._taken.get(template, set()).discard(index)
        self._low[template] = min(index, self._low.get(template, 0))

    def changed(self, _: str, before: Data | None, after: Data | None) -> None:
        """Follows the cache of Metal3Datas."""
        data = after or before
        if data is None:
            return
        template = names.key(data.metadata.namespace, data.spec.template.name)
        if after is not None:
            self._taken.setdefault(template, set()).add(data.spec.index)
        else:
            self.give_back(template, data.spec.index)

"""Which data a machine is provisioned with: its own, of the template it names, rendered for the host it has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from hostler.apis import capi
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate, IpAddress, IpClaim
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import DataCaches
from hostler.metal.data.controller import CLAIM as CLAIM_KEY
from hostler.metal.data.controller import DATA, DataReconciler
from hostler.metal.data.decide import RenderedSecret, ask_writes, let_go_writes
from hostler.metal.model import ClaimSeen, Facts, Rendered
from tests.unit.metal_tools import toolbox
from tests.unit.nowhere import Nowhere
from tests.unit.test_metal_claims import Room
from tests.unit.test_metal_decide import CONSUMER, IMAGE

READY: dict[str, Any] = {
    "metadata": {"name": "t-0", "namespace": "n", "annotations": {names.RENDERED_FOR: "hu"}},
    "spec": {"claim": {"name": "m"}, "template": {"name": "t"}, "metaData": {"name": "m-metadata"}},
    "status": {"ready": True},
}
CLAIM: dict[str, Any] = {
    "metadata": {
        "name": "m",
        "namespace": "n",
        "ownerReferences": [{"kind": "Metal3Machine", "name": "m", "uid": "u"}],
    },
    "spec": {"template": {"name": "t"}},
}


class Pen:
    """Keeps what is written, and answers nothing, as in a dry run."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.gone: list[str] = []

    async def create(self, *_: Any, **__: Any) -> None: ...

    async def patch(self, _: Any, name: str, body: Any, *__: Any, **___: Any) -> None:
        self.patches.append((name, body))

    async def delete(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        self.gone.append(name)


class Desk(Room):
    """One machine with its host, its claim and its data; nobody reads, and only a `pen` writes."""

    def __init__(
        self, claim: Any = None, data: Any = None, host: Any = None, named: str = "n/h", pen: Pen | None = None,
        by_host_name: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        nobody = Client(Nowhere())
        self.data = DataCaches.make(nobody, Metrics())
        tools = toolbox(self.caches, nobody, cast(Writer, pen), data=self.data)
        self.desk = DataReconciler(tools, by_host_name=by_host_name)
        self.put(msgspec.convert({"metadata": {"name": "m", "namespace": "n"}}, Machine))
        meta = {
            "name": "m", "namespace": "n", "uid": "u", "annotations": {names.HOST_ANNOTATION: named},
            "ownerReferences": [{"kind": "Machine", "name": "m"}],
        }  # fmt: skip
        self.put(msgspec.convert({"metadata": meta, "spec": {"dataTemplate": {"name": "t"}}}, Metal3Machine))
        whole = {"metadata": {"name": "h", "namespace": "n", "uid": "hu"}, "spec": {"consumerRef": CONSUMER}}
        self.put(msgspec.convert(merged(whole, host), BareMetalHost))
        for watch, body, record in ((self.data.claims, CLAIM, DataClaim), (self.data.datas, READY, Data)):
            change = merged(body, claim if record is DataClaim else data)
            change["metadata"]["resourceVersion"] = "1"
            cast(Any, watch).store.put(msgspec.convert(change, record))

    def facts(self) -> Facts:
        for watch in self.data.all():
            watch.store.synced = True
        machine = self.caches.machines.store.get("n/m")
        assert machine is not None
        return self.desk.add_facts(self.caches.facts(machine))

    def look(self, **template: Any) -> None:
        """One look at the data, whose template has this in its spec."""
        body = {"metadata": {"name": "t", "namespace": "n", "resourceVersion": "1"}, "spec": template}
        self.data.templates.store.put(msgspec.convert(body, DataTemplate))
        for watch in (*self.caches.all(), *self.data.all()):
            watch.store.synced = True
        assert asyncio.run(self.desk.reconcile("data:n/t-0")) is None

    def rendered(self) -> Rendered:
        machine = self.caches.machines.store.get("n/m")
        assert machine is not None
        return self.desk.rendered(machine)


def merged(body: Any, change: Any) -> Any:
    if not isinstance(body, dict) or not isinstance(change, dict):
        return body if change is None else change
    return {key: merged(body.get(key), change.get(key)) for key in {*body, *change}}


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({}, ""),
        ({"data": {"metadata": {"annotations": {names.RENDERED_FOR: "another"}}}}, "is rendered again, for the host"),
        ({"host": {"spec": {"consumerRef": {"name": "x"}}}}, "is rendered again, for the host"),
        ({"claim": {"metadata": {"deletionTimestamp": "now"}}}, "waits until the Metal3DataClaim m of before is gone"),
        ({"claim": {"metadata": {"ownerReferences": [{"name": "m", "uid": "u0"}]}}}, "belongs to another machine"),
        ({"claim": {"metadata": {"ownerReferences": []}}}, "belongs to another machine of its name, or to nobody"),
        ({"claim": {"spec": {"template": {"name": "t0"}}}}, "the claim was for Metal3DataTemplate t0"),
        ({"data": {"spec": {"metaData": {"namespace": "kube-system"}}}}, "spec.metaData of Metal3Data t-0 is in name"),
    ],
)
def test_only_its_own_data_of_its_template_and_for_its_host_is_ready(case: Any, says: str) -> None:
    found = Desk(**case).rendered()
    assert found.ready == (not says)
    assert says in found.why
    if found.ready:
        assert found.meta_data is not None
        assert found.meta_data.name == "m-metadata"


def test_what_is_installed_stays_with_what_it_was_installed_with() -> None:
    imaged = {"spec": {"image": IMAGE}}
    elsewhere = {"metadata": {"annotations": {names.RENDERED_FOR: "another"}}}
    other = {"spec": {"template": {"name": "t0"}}}
    assert Desk(host=imaged, data=elsewhere, claim=other).rendered().ready
    assert Desk(host=imaged, data=elsewhere).desk.unfinished("n/m") == []


def test_what_the_go_provider_rendered_is_taken_over_for_the_host_it_is_on() -> None:
    room = Desk(pen=(pen := Pen()))
    room.data.datas.store.put(
        msgspec.convert({**READY, "metadata": {"name": "t-0", "namespace": "n", "resourceVersion": "2"}}, Data)
    )
    assert room.rendered().ready
    assert room.desk.unfinished("n/m") == [f"{DATA}n/t-0"]
    room.look()
    mark = {"annotations": {names.RENDERED_FOR: "hu"}, "resourceVersion": "2"}
    assert pen.patches == [("t-0", {"metadata": mark})], "else it would count as rendered for any host after this"
    Desk(pen=(pen := Pen())).look()
    assert pen.patches == [], "once"


def test_data_that_is_not_done_is_looked_at_when_its_machine_or_host_changes() -> None:
    assert Desk().desk.unfinished("n/m") == []
    assert Desk(data={"status": {"ready": False}}).desk.unfinished("n/m") == [f"{DATA}n/t-0"]
    elsewhere = {"metadata": {"annotations": {names.RENDERED_FOR: "another"}}}
    assert Desk(data=elsewhere).desk.unfinished("n/m") == [f"{DATA}n/t-0"]


GOOD = {"metaData": {"strings": [{"key": "a", "value": "b"}]}}
GOES = {"deletionTimestamp": "now", "finalizers": [names.DATA_FINALIZER]}


@pytest.mark.parametrize(
    ("key", "claim", "data"),
    [
        ("claim:n/m", {}, {}),
        ("data:n/t-0", {}, {}),
        ("template:n/t", {}, {}),
        ("claim:n/m", GOES, {}),
        ("data:n/t-0", {}, GOES),
    ],
)
def test_nothing_is_rendered_or_taken_back_while_the_cluster_is_paused(key: str, claim: Any, data: Any) -> None:
    """It may be on its way to another management cluster."""
    label = {"labels": {capi.CLUSTER_NAME: "c"}}
    pen = Pen()
    room = Desk(claim={"metadata": label | claim}, data={"metadata": label | data, "status": {"ready": False}}, pen=pen)
    template = {"metadata": {"name": "t", "namespace": "n", "resourceVersion": "1"}, "spec": {"clusterName": "c"}}
    room.data.templates.store.put(msgspec.convert(template, DataTemplate))
    for watch in (*room.caches.all(), *room.data.all()):
        watch.store.synced = True
    room.put(msgspec.convert({"metadata": {"name": "c", "namespace": "n"}, "spec": {"paused": True}}, Cluster))
    assert asyncio.run(room.desk.reconcile(key)) is None
    assert not pen.patches
    assert not pen.gone
    room.put(msgspec.convert({"metadata": {"name": "c", "namespace": "n"}}, Cluster))
    asyncio.run(room.desk.reconcile(key))
    assert pen.patches or pen.gone


def test_a_host_of_another_namespace_is_nobodys_here() -> None:
    """Who may write hosts in one namespace must not get the bootstrap data of machines in another, nor their hosts."""
    lure = Desk(host={"metadata": {"namespace": "evil"}}, named="evil/h")
    machine = lure.caches.machines.store.get("n/m")
    assert machine is not None
    assert lure.caches.host_of(machine) is None
    assert not lure.caches.facts(machine).associated
    taken = lure.caches.hosts.store.get("evil/h")
    assert taken is not None
    assert not lure.caches.leaving(taken), "its consumer is somebody else, who is not known to go"
    # Nor does a machine get a free host of another namespace by naming it.
    free = {"metadata": {"namespace": "evil"}, "spec": {"consumerRef": {"kind": "None"}}}
    assert Desk(host=free, named="evil/h").caches.named_host(machine) is None


def test_a_host_that_cannot_be_read_is_not_one_that_does_not_exist() -> None:
    room = Desk()
    machine = room.caches.machines.store.get("n/m")
    assert machine is not None
    assert room.caches.unreadable_host(machine) == ""
    room.caches.hosts.store.unread("n/h", 99, "spec.online is a string")
    assert room.caches.host_of(machine) is None
    assert room.caches.unreadable_host(machine) == (
        "Host n/h cannot be read (spec.online is a string); nothing is done until it can."
    )


ELSEWHERE: dict[str, Any] = {
    "metadata": {"annotations": {names.RENDERED_FOR: "another"}},
    "spec": {"networkData": {"name": "m-networkdata"}},
}


@pytest.mark.parametrize("template", [{}, GOOD])
def test_what_a_new_rendering_lacks_is_taken_out_of_the_data(template: Any) -> None:
    pen = Pen()
    Desk(data=ELSEWHERE, pen=pen).look(**template)
    ours = {"name": "m-metadata", "namespace": "n"} if template else None
    change = {
        "metadata": {"annotations": {names.RENDERED_FOR: "hu"}},
        "spec": {"metaData": ours, "networkData": None},
    }
    assert pen.patches == [("t-0", change), ("t-0", {"status": {"ready": True, "errorMessage": None}})]


def test_what_was_written_before_a_crash_is_not_written_again() -> None:
    """Else it could die there again and again, and never get any further."""

    class Written(Pen):
        text = b"a: b\nproviderid: n/h/m\n"

        async def create(self, *_: Any, **__: Any) -> None:
            raise AlreadyExists(409, "AlreadyExists", "m-metadata exists")

        async def get(self, *_: Any, **__: Any) -> RenderedSecret:
            meta = {"labels": {capi.CLUSTER_NAME: "c"}, "ownerReferences": [{"kind": "Metal3Data", "uid": "du"}]}
            return msgspec.convert(
                {"metadata": meta, "type": names.SECRET_TYPE, "data": {"metaData": self.text}}, RenderedSecret
            )

    def patched(text: bytes, **spec: Any) -> list[str]:
        pen = Written()
        pen.text = text
        given = {"uid": "du", "labels": {capi.CLUSTER_NAME: "c"}}
        room = Desk(data={"metadata": given, "spec": spec, "status": {"ready": False}}, pen=pen)
        room.desk._renderer._client = cast(Client, pen)
        room.look(**GOOD)
        return [name for name, _ in pen.patches]

    whole = {"name": "m-metadata", "namespace": "n"}
    assert patched(Written.text, metaData=whole) == ["t-0"], "only that it is ready"
    assert patched(Written.text) == ["t-0", "t-0"], "and which secret it is"
    assert patched(b"a: c", metaData=whole) == ["m-metadata", "t-0"], "of an earlier rendering"


def test_what_a_moved_host_is_installed_with_is_not_rendered_again() -> None:
    """A move leaves the status of the data behind, and gives its host another uid."""
    spec = {"consumerRef": CONSUMER, "image": IMAGE, "metaData": {"name": "m-metadata"}}
    pen = Pen()
    lost = {"status": {"ready": False}, "metadata": {"annotations": {names.RENDERED_FOR: "before"}}}
    Desk(data=lost, host={"spec": spec}, pen=pen).look(**GOOD)
    marked, ready = [body for name, body in pen.patches if name == "t-0"]
    assert marked["metadata"]["annotations"] == {names.RENDERED_FOR: "hu"}
    assert ready == {"status": {"ready": True, "errorMessage": None}}
    pen = Pen()
    Desk(data=lost, host={"spec": {**spec, "image": None}}, pen=pen).look(**GOOD)
    assert "spec" in pen.patches[0][1], "a host on which nothing is installed yet gets its own"


@pytest.mark.parametrize("kind", ["data", "claim"])
def test_both_finalizers_of_the_go_provider_are_taken_off_and_others_stay(kind: str) -> None:
    both = {
        "data": [names.DATA_CLAIM_FINALIZER, names.DATA_FINALIZER],
        "claim": [names.MACHINE_FINALIZER, names.DATA_CLAIM_FINALIZER],
    }[kind]
    going = {"metadata": {"deletionTimestamp": "now", "finalizers": [*both, "another's"], "ownerReferences": []}}
    pen = Pen()
    room = Desk(claim=going, data=going if kind == "data" else {"spec": {"claim": {"name": "other"}}}, pen=pen)
    for watch in (*room.caches.all(), *room.data.all()):
        watch.store.synced = True
    asyncio.run(room.desk.reconcile({"data": "data:n/t-0", "claim": "claim:n/m"}[kind]))
    assert [body["metadata"]["finalizers"] for _, body in pen.patches] == [["another's"]]


@pytest.mark.parametrize(
    ("claim", "gone"),
    [
        ({}, ["m"]),
        ({"ownerReferences": [{"name": "m", "uid": "u0"}]}, []),
        ({"ownerReferences": []}, []),
        ({"deletionTimestamp": "now"}, []),
    ],
)
def test_only_a_claim_of_its_own_is_deleted_for_another_template(claim: Any, gone: list[str]) -> None:
    room = Desk(claim={"metadata": claim, "spec": {"template": {"name": "t0"}}})
    assert [(one.verb, one.name) for one in ask_writes(room.facts())] == [("delete", name) for name in gone]


def test_data_is_claimed_once_it_is_known_that_there_is_no_claim_and_let_go_with_the_machine() -> None:
    room = Desk()
    claim = room.data.claims.store.get("n/m")
    facts = room.facts()
    (made,) = ask_writes(replace(facts, data_claim=ClaimSeen(None, {"x": "y"})))
    assert (made.verb, made.name, made.body["metadata"]["labels"]["x"]) == ("create", "m", "y")
    assert ask_writes(replace(facts, data_claim=None)) == ask_writes(facts) == ()
    (gone,) = let_go_writes(facts)
    assert claim is not None
    assert (gone.verb, gone.name, gone.uid) == ("delete", "m", claim.metadata.uid)
    assert let_go_writes(replace(facts, elsewhere="Host other/h is in another namespace")) == ()


@pytest.mark.parametrize("by_host_name", [True, False])
def test_addresses_by_the_name_of_the_host_before_go_back_to_its_next_machine(by_host_name: bool) -> None:
    def claims(room: Desk, going: bool) -> None:
        owners = [{"kind": "Metal3Data", "name": "t-0"}]
        for name, labels in (("h0-p", {names.POOL_NAME: "p"}), ("h-p", {names.POOL_NAME: "p"}), ("t-0-q", {})):
            meta = {
                "name": name, "namespace": "n", "resourceVersion": "1", "labels": labels, "ownerReferences": owners,
                "finalizers": [names.DATA_FINALIZER], "deletionTimestamp": "now" if going else "",
            }  # fmt: skip
            room.data.ip_claims.store.put(msgspec.convert({"metadata": meta}, IpClaim))

    pen = Pen()
    room = Desk(data=ELSEWHERE, pen=pen, by_host_name=by_host_name)
    claims(room, going=False)
    room.look()
    assert pen.gone == (["h0-p"] if by_host_name else [])
    room = Desk(pen=(pen := Pen()), by_host_name=by_host_name)
    claims(room, going=False)
    room.look()
    assert pen.gone == [], "what is rendered stays as it is"
    room = Desk(pen=(pen := Pen()), by_host_name=by_host_name)
    claims(room, going=True)
    room.look()
    assert [name for name, _ in pen.patches] == (["h0-p"] if by_host_name else [])


@pytest.mark.parametrize("of_metal3", [True, False], ids=["IPClaim", "IPAddressClaim"])
@pytest.mark.parametrize(
    ("case", "dropped"),
    [
        ({"data": "gone"}, True),
        # An index is given again, so its name is too. What is installed may have the address.
        ({"data": "another"}, True),
        ({"data": "another", "imaged": True}, False),
        # Somebody deleted it before its address was put to use: another one is claimed.
        ({"data": "its own"}, True),
        ({"data": "its own", "imaged": True}, False),
        ({"data": "unreadable"}, False),
        ({"data": "unread"}, False),
        ({"data": "gone", "going": False}, False),
        ({"data": "gone", "paused": True}, False),
    ],
)
def test_an_address_claim_is_let_go_when_its_data_is_known_to_be_gone_or_nothing_is_installed_with_it(
    case: Any, dropped: bool, of_metal3: bool
) -> None:
    told = {"going": True, "paused": False, "imaged": False, **case}
    uid = "another" if told["data"] == "another" else "du"
    room = Desk(
        data={"metadata": {"uid": uid}, "status": {"ready": False}}, pen=(pen := Pen()),
        host={"spec": {"image": IMAGE}} if told["imaged"] else None,
    )  # fmt: skip
    pools = {"kind": "OtherPool", "apiGroup": "ipam.example.org"} if not of_metal3 else {}
    source = {"metaData": {"ipAddressesFromPool": [{"key": "ip", "name": "p", **pools}]}}
    body = {"metadata": {"name": "t", "namespace": "n", "resourceVersion": "1"}, "spec": source}
    room.data.templates.store.put(msgspec.convert(body, DataTemplate))
    room.data.pools.store.put(
        msgspec.convert({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "1"}}, Object)
    )
    datas = room.data.datas.store
    if told["data"] in ("gone", "unread"):
        datas.forget("n/t-0", 2)
    elif told["data"] == "unreadable":
        datas.unread("n/t-0", 2, "its index is a string")
    spec = {"paused": told["paused"]}
    room.put(msgspec.convert({"metadata": {"name": "c", "namespace": "n"}, "spec": spec}, Cluster))
    meta = {
        "name": "t-0-p", "namespace": "n", "resourceVersion": "7", "labels": {capi.CLUSTER_NAME: "c"},
        "ownerReferences": [{"kind": "Metal3Data", "name": "t-0", "uid": "du"}],
        "finalizers": ["another's", names.DATA_FINALIZER], "deletionTimestamp": "now" if told["going"] else "",
    }  # fmt: skip
    claims = room.data.ip_claims if of_metal3 else room.data.capi_claims
    asked = {"pool": {"name": "p"}} if of_metal3 else {"poolRef": {"name": "p", **pools}}
    claims.store.put(msgspec.convert({"metadata": meta, "spec": asked}, IpClaim))
    for watch in (*room.caches.all(), *room.data.all()):
        watch.store.synced = True
    datas.synced = told["data"] != "unread"
    assert bool(asyncio.run(room.desk.reconcile("data:n/t-0"))) == (told["data"] == "unread")
    change = {"metadata": {"finalizers": ["another's"], "resourceVersion": "7"}}
    assert [one for one in pen.patches if one[0] == "t-0-p"] == ([("t-0-p", change)] if dropped else [])


@pytest.mark.parametrize("key", ["claim:n/m", "data:n/t-0"])
@pytest.mark.parametrize(
    ("host", "machine", "stays"),
    [
        ({"spec": {"image": IMAGE}}, {}, True),
        ({"spec": {"image": IMAGE}}, {"deletionTimestamp": "now"}, False),
        ({"spec": {"image": IMAGE}}, {"uid": "another"}, False),
        ({"spec": {"image": IMAGE}}, "unreadable", True),
        ("unreadable", {}, True),
        ({}, {}, False),
    ],
)
def test_data_that_somebody_deletes_stays_while_a_host_is_installed_with_it(
    key: str, host: Any, machine: Any, stays: bool
) -> None:
    """Else another machine would be given the address of a node that runs."""
    going = {"metadata": {"deletionTimestamp": "now", "finalizers": [names.DATA_FINALIZER]}}
    room = Desk(claim=going, data=going, host=host if host != "unreadable" else None, pen=(pen := Pen()))
    address = {"name": "t-0-p", "namespace": "n", "resourceVersion": "1", "ownerReferences": [
        {"kind": "Metal3Data", "name": "t-0"}
    ]}  # fmt: skip
    room.data.ip_claims.store.put(msgspec.convert({"metadata": address}, IpClaim))
    known = room.caches.machines.store.get("n/m")
    assert known is not None
    for watch in (*room.caches.all(), *room.data.all()):
        watch.store.synced = True
    if host == "unreadable":
        room.caches.hosts.store.unread("n/h", 99, "spec.online is a string")
    if machine == "unreadable":
        room.caches.machines.store.unread("n/m", 99, "spec.image is a string")
    elif machine:
        meta = {"deletion_timestamp": machine.get("deletionTimestamp", ""), "uid": machine.get("uid", "u")}
        room.put(msgspec.structs.replace(known, metadata=msgspec.structs.replace(known.metadata, **meta)))
    assert {f"{CLAIM_KEY}n/m", f"{DATA}n/t-0"} == set(room.desk.unfinished("n/m")), "each change of its machine counts"
    if not stays and key.startswith(CLAIM_KEY):
        room.data.datas.store.put(msgspec.convert(merged(READY, {"metadata": {"resourceVersion": "2"}}), Data))
    asyncio.run(room.desk.reconcile(key))
    assert bool(pen.gone) == (not stays)
    said = [body["status"]["errorMessage"] for _, body in pen.patches]
    assert len(said) == stays
    assert all("is installed with" in one or "cannot be read" in one for one in said)


@pytest.mark.parametrize(("kind", "says"), [("OtherPool", ""), ("BigPool", "is for BigPool p and not for OtherPool p")])
def test_the_address_of_another_pool_whose_claim_has_the_same_name_is_not_taken(kind: str, says: str) -> None:
    room = Desk(data={"status": {"ready": False}}, pen=(pen := Pen()))
    group = {"apiGroup": "ipam.example.org", "name": "p"}
    meta = {"name": "t-0-p", "namespace": "n", "resourceVersion": "1"}
    owned = {**meta, "ownerReferences": [{"kind": "Metal3Data", "name": "t-0"}]}
    claim = {
        "metadata": owned,
        "spec": {"poolRef": {**group, "kind": kind}},
        "status": {"addressRef": {"name": "t-0-p"}},
    }
    room.data.capi_claims.store.put(msgspec.convert(claim, IpClaim))
    address = {"metadata": meta, "spec": {"address": "10.0.0.9", "prefix": 24}}
    room.data.capi_addresses.store.put(msgspec.convert(address, IpAddress))
    room.look(metaData={"ipAddressesFromPool": [{"key": "ip", **group, "kind": "OtherPool"}]})
    told = [body["status"].get("errorMessage") or "" for _, body in pen.patches if "status" in body]
    assert [says in one for one in told] == [True]
    assert bool(told[0]) == bool(says)


def test_somebody_elses_secret_in_the_way_is_looked_for_soon_at_first_and_then_rarely() -> None:
    class Taken(Pen):
        free = False

        async def create(self, *_: Any, **__: Any) -> None:
            if not self.free:
                raise AlreadyExists(409, "AlreadyExists", "m-metadata exists")

        async def get(self, *_: Any, **__: Any) -> RenderedSecret:
            return RenderedSecret(type="Opaque")

    pen = Taken()
    room = Desk(data={"status": {"ready": False}}, pen=pen)
    room.desk._renderer._client = cast(Client, pen)
    room.data.templates.store.put(
        msgspec.convert(
            {"metadata": {"name": "t", "namespace": "n", "resourceVersion": "1"}, "spec": GOOD}, DataTemplate
        )
    )
    for watch in (*room.caches.all(), *room.data.all()):
        watch.store.synced = True

    def look() -> float | None:
        return asyncio.run(room.desk.reconcile("data:n/t-0"))

    assert [look() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    pen.free = True
    assert look() is None
    pen.free = False
    assert look() == 1.0, "another time is another beginning"

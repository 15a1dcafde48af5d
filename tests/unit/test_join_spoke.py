"""Further clusters: which are followed, who is expected in exactly one, and how much another's API server may send."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis import capi, openshift
from hostler.apis.assisted import AGENT, CLUSTER_DEPLOYMENT, ClusterDeployment
from hostler.apis.capi import CLUSTER, CLUSTER_NAME, Cluster
from hostler.apis.metal3 import BARE_METAL_HOST, METAL3_MACHINE
from hostler.host.facts import Known
from hostler.instant import iso
from hostler.join.decide import judge_requests
from hostler.join.invitations import SOURCES
from hostler.join.model import SIGNING_REQUEST, Act, Facts, SigningRequest
from hostler.join.observe import Reading, facts_of_reading, pending_of
from hostler.join.settings import SPOKES
from hostler.join.spokes import ClusterObject, Spoke, choose_spokes, invitations_for, spoke_of
from hostler.kube.client import Client
from hostler.kube.errors import TooLarge
from hostler.kube.foreign import describe_failure
from hostler.kube.foreign_watch import ForeignWatch, TooMuch
from hostler.kube.kinds import NODE, Kind
from hostler.kube.memory_shares import Shares
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Object
from tests.unit.answering import answering
from tests.unit.joining import NOW, POLICY, client, node

SPOKE = Spoke(CLUSTER, "a", "one", "uid", "one-kubeconfig")
DEPLOYED = Spoke(CLUSTER_DEPLOYMENT, "a", "one", "uid", "one-admin-kubeconfig")


def cluster(
    name: str,
    namespace: str = "a",
    made: str = "2026-01-01T00:00:00Z",
    record: type[ClusterObject] = Cluster,
    **spec: Any,
) -> ClusterObject:
    about = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": made}
    about |= spec.pop("about", {})
    return msgspec.convert({"metadata": about, "spec": spec}, record)


@pytest.mark.parametrize(
    ("named", "followed"),
    [((), []), (("all",), ["a/one", "a/two", "b/one"]), (("a/*",), ["a/one", "a/two"]), (("b/one",), ["b/one"]),
     (("one",), []), (("*",), []), (("a/on",), [])],
)  # fmt: skip
def test_only_named_clusters_are_followed(named: tuple[str, ...], followed: list[str]) -> None:
    found = [
        (CLUSTER, cluster("one")),
        (CLUSTER, cluster("two")),
        (CLUSTER_DEPLOYMENT, cluster("one", "b", record=ClusterDeployment)),
    ]
    assert sorted(one.key for one in choose_spokes(found, named, ())) == followed


def test_paused_leaving_and_own_clusters_are_not_followed() -> None:
    found = [
        (CLUSTER, cluster("paused", paused=True)),
        (CLUSTER, cluster("noted", about={"annotations": {"cluster.x-k8s.io/paused": ""}})),
        (CLUSTER, cluster("leaving", about={"deletionTimestamp": "2026-01-02T00:00:00Z"})),
        (CLUSTER, cluster("self")),
        (CLUSTER, cluster("young", made="2026-03-01T00:00:00Z")),
        (CLUSTER, cluster("old")),
    ]
    followed = choose_spokes(found, ("all",), {"a/self"})
    assert [one.name for one in followed] == ["old", "young"], "a new cluster displaces no older one"


def test_where_each_kind_keeps_its_kubeconfig() -> None:
    assert spoke_of(CLUSTER, cluster("c")).secret == "c-kubeconfig"
    assert spoke_of(CLUSTER_DEPLOYMENT, cluster("c", record=ClusterDeployment)).secret == "c-admin-kubeconfig"
    named = {"adminKubeconfigSecretRef": {"name": "mine"}}
    assert spoke_of(CLUSTER_DEPLOYMENT, cluster("c", record=ClusterDeployment, clusterMetadata=named)).secret == "mine"
    assert spoke_of(CLUSTER, cluster("c", clusterMetadata=named)).secret == "c-kubeconfig", "that field is Hive's"


@pytest.mark.parametrize("text", ["*", "a", "a/", "/b", "A/b", "a/b/c", "a/b*", "all/x y"])
def test_what_names_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        SPOKES.read(text)


# -- the border: a host of one cluster lets no node into another

WINDOW = {"provisioning": {"state": "provisioning"}, "operationHistory": {"provision": {"start": iso(NOW - 600)}}}
spaces = st.sampled_from(["a", "b"])
clusters = st.sampled_from(["one", "two", "", "a/one"])


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Kind, Any]:
    """Anything that could invite worker-1, in any namespace, for any cluster, through any reference."""
    kind = draw(st.sampled_from([BARE_METAL_HOST, METAL3_MACHINE, capi.MACHINE, AGENT, openshift.MACHINE]))
    name = draw(st.sampled_from(["worker-1", "m-1", "m-2"]))
    about: dict[str, Any] = {"name": name, "namespace": draw(spaces), "creationTimestamp": iso(NOW - 700)}
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    if kind == BARE_METAL_HOST:
        status = WINDOW
        if draw(st.booleans()):
            machine = {"kind": "Metal3Machine", "name": draw(st.sampled_from(["worker-1", "m-1", "m-2"]))}
            spec["consumerRef"] = {**machine, "apiVersion": METAL3_MACHINE.api_version, "namespace": draw(spaces)}
    elif kind == AGENT:
        bound = {"name": draw(clusters), "namespace": draw(st.sampled_from(["a", "b", ""]))}
        spec = {"approved": True, "hostname": "worker-1", "clusterDeploymentName": bound}
        status = {"debugInfo": {"state": "installing"}, "progress": {"stageStartTime": iso(NOW - 600)}}
    else:
        about["labels"] = {CLUSTER_NAME: draw(clusters)}
        spec = {"clusterName": draw(clusters)} if kind == capi.MACHINE else {}
        status = {"addresses": [{"type": "Hostname", "address": "worker-1"}]}
    return kind, msgspec.convert({"metadata": about, "spec": spec, "status": status}, SOURCES[kind])


def facts_in(spoke: Spoke, found: list[tuple[Kind, Any]], *nodes: Node) -> Facts:
    return facts_of_reading(Reading([client()], nodes, found, spoke=spoke), POLICY, NOW)


def is_of(spoke: Spoke, kind: Kind, host: Any) -> bool:
    """By hand, from the objects alone: whether this one says that worker-1 is of exactly that cluster."""
    if host.metadata.namespace != spoke.namespace:
        return False
    if kind == AGENT:
        bound = host.spec.cluster_deployment_name
        return spoke.kind == CLUSTER_DEPLOYMENT and (bound.namespace or host.metadata.namespace, bound.name) == (
            spoke.namespace, spoke.name,
        )  # fmt: skip
    said = {getattr(host.spec, "cluster_name", ""), host.metadata.labels.get(CLUSTER_NAME, "")}
    return spoke.kind == CLUSTER and kind in (METAL3_MACHINE, capi.MACHINE) and spoke.name in said


@given(st.lists(hosts(), max_size=6), st.sampled_from([SPOKE, DEPLOYED]))
def test_a_host_is_let_into_its_own_cluster_only(found: list[tuple[Kind, Any]], spoke: Spoke) -> None:
    liar = msgspec.structs.replace(node("liar"))
    liar.metadata.labels["node-role.kubernetes.io/control-plane"] = ""
    (verdict,) = judge_requests([client()], facts_in(spoke, found, liar), POLICY, NOW)
    if verdict.act is Act.APPROVE:
        assert any(is_of(spoke, kind, host) for kind, host in found), found


def test_a_host_of_the_cluster_is_let_in() -> None:
    """The property above is about nothing unless this one comes in."""
    machine = {"metadata": {"name": "m-1", "namespace": "a", "labels": {CLUSTER_NAME: "one"}}}
    consumer = {"kind": "Metal3Machine", "name": "m-1", "apiVersion": METAL3_MACHINE.api_version}
    host = {"metadata": {"name": "worker-1", "namespace": "a"}, "spec": {"consumerRef": consumer}, "status": WINDOW}
    found = [
        (METAL3_MACHINE, msgspec.convert(machine, SOURCES[METAL3_MACHINE])),
        (BARE_METAL_HOST, msgspec.convert(host, SOURCES[BARE_METAL_HOST])),
    ]
    (verdict,) = judge_requests([client()], facts_in(SPOKE, found), POLICY, NOW)
    assert verdict.act is Act.APPROVE, verdict
    (elsewhere,) = judge_requests([client()], facts_in(dataclasses.replace(SPOKE, name="two"), found), POLICY, NOW)
    assert "is for cluster a/one, and this one is a/two" in elsewhere.why
    assert "--cluster a/two" in elsewhere.why


def test_agents_of_another_namespace_count_only_when_listed() -> None:
    body = {
        "metadata": {"name": "x", "namespace": "pool", "creationTimestamp": iso(NOW - 700)},
        "spec": {"approved": True, "hostname": "worker-1",
                 "clusterDeploymentName": {"name": "one", "namespace": "a"}},
    }  # fmt: skip
    found = [(AGENT, msgspec.convert(body, SOURCES[AGENT]))]
    assert invitations_for(DEPLOYED, found, POLICY) == {}
    listed = dataclasses.replace(POLICY, inventories={AGENT.resource: frozenset({"pool"})})
    (invitation,) = invitations_for(DEPLOYED, found, listed)["worker-1"]
    assert invitation.cluster == "a/one"
    assert invitations_for(SPOKE, found, listed) == {}, "a Cluster of the same name is another cluster"


def agent(namespace: str, host: str, cluster: str = "one") -> tuple[Kind, Any]:
    bound = {"name": cluster, "namespace": "a"}
    body = {
        "metadata": {"name": host, "namespace": namespace, "creationTimestamp": iso(NOW - 700)},
        "spec": {"approved": True, "hostname": host, "clusterDeploymentName": bound},
        "status": {"debugInfo": {"state": "installing"}, "progress": {"stageStartTime": iso(NOW - 600)}},
    }
    return AGENT, msgspec.convert(body, SOURCES[AGENT])


def test_a_listed_namespace_does_not_shut_out_the_spokes_own() -> None:
    listed = dataclasses.replace(POLICY, inventories={AGENT.resource: frozenset({"pool"})})
    found = [agent("a", "own"), agent("pool", "pooled"), agent("b", "stray"), agent("pool", "other", "two")]
    made = invitations_for(DEPLOYED, found, listed)
    assert {name for name, those in made.items() if any(one.here(frozenset({"a/one"})) for one in those)} == {
        "own", "pooled",
    }  # fmt: skip


def test_a_listed_namespace_opens_no_other_kind() -> None:
    """A host elsewhere that says this cluster's machine consumes it is another tenant's word."""
    machine = {"metadata": {"name": "m-1", "namespace": "a", "labels": {CLUSTER_NAME: "one"}}}
    consumer = {"kind": "Metal3Machine", "name": "m-1", "namespace": "a", "apiVersion": METAL3_MACHINE.api_version}
    host = {"metadata": {"name": "worker-1", "namespace": "b"}, "spec": {"consumerRef": consumer}, "status": WINDOW}
    found = [
        (METAL3_MACHINE, msgspec.convert(machine, SOURCES[METAL3_MACHINE])),
        (BARE_METAL_HOST, msgspec.convert(host, SOURCES[BARE_METAL_HOST])),
    ]
    listed = dataclasses.replace(POLICY, inventories={BARE_METAL_HOST.resource: frozenset({"a", "b"})})
    assert set(invitations_for(SPOKE, found, listed)) == {"m-1"}


def test_nodes_of_a_spoke_do_not_say_which_cluster_it_is() -> None:
    liar = node("liar")
    liar.metadata.labels["node-role.kubernetes.io/control-plane"] = ""
    liar.metadata.annotations[CLUSTER_NAME] = "two"
    assert facts_in(SPOKE, [], liar).clusters == {"a/one"}


def test_a_request_with_a_name_no_api_server_takes_is_left_out() -> None:
    assert pending_of([client(csr="x; curl evil | sh"), client(csr="\x1b[2J"), client(csr="")]) == []


@pytest.mark.parametrize("name", ["csr-7x2k4", "node-csr-3Jq_Yd-Zk0aB_", "node-csr-abc-", "a.b"])
def test_a_request_named_as_kubelets_name_theirs_is_judged(name: str) -> None:
    assert [one.metadata.name for one in pending_of([client(csr=name)])] == [name]


def test_requests_of_either_name_contest_one_host() -> None:
    requests = [client(csr="csr-7x2k4"), client(csr="node-csr-3Jq_Yd-Zk0aB_")]
    known = facts_in(DEPLOYED, [agent("a", "worker-1")])
    for alone in requests:
        assert [one.act for one in judge_requests(pending_of([alone]), known, POLICY, NOW)] == [Act.APPROVE]
    assert [one.act for one in judge_requests(pending_of(requests), known, POLICY, NOW)] == [Act.LEAVE, Act.LEAVE]


# -- what another's API server may send


def follow(answer: Any, **limits: int) -> ForeignWatch[SigningRequest]:
    """Follow requests at a server that answers so, for as long as it can be; the watch afterwards."""
    known: dict[str, Any] = {"most_bytes": 1 << 20, "most_objects": 100, **limits}

    async def run() -> ForeignWatch[SigningRequest]:
        async with answering(answer) as to:
            troubled = asyncio.Event()
            watch = ForeignWatch(
                to, SIGNING_REQUEST, SigningRequest, metrics=Metrics(), troubled=troubled.set, where="t/c",
                share=Shares(64 << 20).open(lambda: None), **known
            )  # fmt: skip
            running = asyncio.create_task(watch.run())
            waits = asyncio.create_task(troubled.wait())
            await asyncio.wait([running, waits], timeout=30, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
            if not running.done():
                running.cancel()
                return watch
            raise running.exception() or AssertionError("it ended")

    return asyncio.run(run())


def sending(piece: bytes) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for number in range(100_000):
                await response.write(piece.replace(b"NUMBER", str(number + 1).encode()))
        except ConnectionError:
            pass
        return response

    return answer


ADDED = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "csr-NUMBER", "resourceVersion": "NUMBER"}}})
MODIFIED = ADDED.replace("csr-NUMBER", "csr-1" + "0" * 1000)


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (b"x" * 65536, "more than 1 MiB"),
        (ADDED.encode() + b"\n", "more than 100"),
        (b"\n" * 65536, "no events"),
        (MODIFIED.encode() + b"\n", "as many bytes"),
    ],
    ids=["a line without an end", "objects without an end", "empty lines without an end", "changes without an end"],
)
def test_what_comes_without_an_end_is_dropped(piece: bytes, why: str) -> None:
    with pytest.raises(TooMuch, match=why):
        follow(sending(piece), most_bytes=2 << 20)


def test_its_own_words_stay_in_the_log() -> None:
    async def refuse(_: web.Request) -> web.Response:
        said = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "\x1b[31mPASSWORD"}
        return web.json_response(said, status=403)

    problem = follow(refuse).problem
    assert "PASSWORD" not in problem
    assert "cannot be followed now" in problem


def test_an_answer_larger_than_allowed_is_not_read() -> None:
    async def run() -> None:
        async with answering(sending(b"x" * 65536)) as to, Client(to.connection, largest=1 << 20) as bounded:
            with pytest.raises(TooLarge, match="more than 1 MiB"):
                await bounded.list(NODE, type=Node)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("padding", "largest", "why"),
    [(10, 1 << 20, "200 pages"), (900_000, 1 << 20, "8 MiB in all its pages"), (2_000_000, 1 << 20, "1 MiB")],
)
def test_pages_without_an_end_are_not_followed(padding: int, largest: int, why: str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["limit"])
        item = {"metadata": {"name": f"n-{len(asked)}", "annotations": {"x": "x" * padding}}}
        return web.json_response({"metadata": {"continue": f"c-{len(asked)}"}, "items": [item]})

    async def run() -> str:
        async with answering(answer) as to, Client(to.connection, largest=largest) as bounded:
            with pytest.raises(TooLarge) as refused:
                await asyncio.wait_for(bounded.list(NODE, type=Object), 60)
        return describe_failure(refused.value)

    assert asyncio.run(run()) == f"its answer is larger than {why}"
    assert len(asked) <= 200
    assert set(asked) == {"100"}


def test_a_packed_answer_is_not_unpacked() -> None:
    """A thousandth of its size comes over the wire, and one read would bring all of it into memory."""
    packed = gzip.compress(json.dumps({"metadata": {}, "items": []}).encode() + b" " * (64 << 20))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async def run() -> int:
        async with answering(answer) as to, Client(to.connection, largest=1 << 20) as bounded:
            return len(await bounded.request("GET", "/api/v1/nodes"))

    assert asyncio.run(run()) == len(packed)


def test_nothing_is_expected_of_a_kind_the_cluster_has_not() -> None:
    """A Machine of OpenShift and a host nobody consumes count for the hub, and for no spoke."""
    machine = {"metadata": {"name": "worker-1", "namespace": "a", "creationTimestamp": iso(NOW - 600)}}
    host = {"metadata": {"name": "worker-1", "namespace": "a"}, "status": WINDOW}
    found = [(openshift.MACHINE, msgspec.convert(machine, SOURCES[openshift.MACHINE])),
             (BARE_METAL_HOST, msgspec.convert(host, SOURCES[BARE_METAL_HOST]))]  # fmt: skip
    for spoke in (SPOKE, DEPLOYED):
        facts = facts_in(spoke, found)
        assert isinstance(facts.invited, Known)
        assert not [one for those in facts.invited.value.values() for one in those if one.here(facts.clusters)]

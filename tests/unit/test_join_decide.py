"""Who is let in: shapes, requesters, inventory, window, single use, floods; and that nothing else ever is."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.host.facts import Known, Unknown
from hostler.join.decide import AGAIN_SECONDS, UNREAD_SECONDS, decide, judge_request, judge_requests
from hostler.join.kubelet_request import Misshapen, Shape, shape_of
from hostler.join.model import (
    CLIENT,
    SERVING,
    Act,
    Crowd,
    Facts,
    Live,
    Outcome,
    ServingLimits,
    SigningRequest,
    Use,
    Verdict,
)
from hostler.join.observe import admitted_by
from hostler.join.served_certificate import LIVE_MOST, kubelets_to_ask
from hostler.kube.records import Condition, Metadata, Node, NodeStatus
from tests.unit.joining import (
    ACCOUNT_GROUPS,
    NODE_GROUPS,
    NOW,
    POLICY,
    TOKEN_GROUP,
    WRONG_CLIENTS,
    WRONG_SERVING,
    client,
    facts,
    failed,
    invited,
    judged,
    key,
    node,
    pem,
    rsa_key,
    serving,
)

TOKEN: dict[str, Any] = {
    "username": "system:bootstrap:abc123",
    "groups": ("system:bootstrappers", TOKEN_GROUP, "system:authenticated"),
}


# -- what is approved


@pytest.mark.parametrize(
    "request_",
    [
        client(),
        client(usages=("digital signature", "key encipherment", "client auth")),
        client(**TOKEN),
        client(request=pem(key=rsa_key(2048))),
        client(request=pem(key=ec.generate_private_key(ec.SECP384R1()), digest=hashes.SHA384())),
        client(request=pem().rstrip(b"\n")),
    ],
)
def test_a_known_host_in_its_window_is_approved(request_: SigningRequest) -> None:
    verdict = judged(request_)
    assert verdict.act is Act.APPROVE, verdict.why
    assert all(rule.outcome is Outcome.HOLDS for rule in verdict.rules)
    assert {rule.name for rule in verdict.rules} == {
        "shape", "requester", "no flood", "new node", "invited", "one host", "host is free", "window", "single use",
    }  # fmt: skip


@pytest.mark.parametrize("sans", [("worker-1",), ("10.0.0.1",), ("WORKER-1.", "10.0.0.1"), ("fd00::1",)])
def test_a_node_gets_a_serving_certificate_for_its_own_names(sans: tuple[str, ...]) -> None:
    there = node("worker-1", "10.0.0.1", "FD00:0:0::1")
    assert judged(serving("worker-1", *sans), facts(there)).act is Act.APPROVE


# -- shapes


@pytest.mark.parametrize("name", WRONG_CLIENTS)
def test_a_client_request_of_another_shape_is_ignored(name: str) -> None:
    changes, why = WRONG_CLIENTS[name]
    verdict = judged(client(**changes))
    assert verdict.act is Act.IGNORE
    assert verdict.why.startswith(f"Ignored: {why}")


@pytest.mark.parametrize("name", WRONG_SERVING)
def test_a_serving_request_of_another_shape_is_ignored(name: str) -> None:
    changes, why = WRONG_SERVING[name]
    verdict = judged(serving(**changes), facts(node(), node("worker-2", "10.0.0.2")))
    assert verdict.act is Act.IGNORE
    assert verdict.why.startswith(f"Ignored: {why}")


@pytest.mark.parametrize(
    "who",
    [
        {"username": "alice", "groups": ("system:authenticated",)},
        {"username": "alice", "groups": ACCOUNT_GROUPS},
        {"username": "system:serviceaccount:default:node-bootstrapper", "groups": ACCOUNT_GROUPS},
        {"groups": ACCOUNT_GROUPS[:2]},
        {"groups": (*ACCOUNT_GROUPS, "system:masters")},
        {"username": "system:bootstrap:abc123", "groups": ("system:bootstrappers", "system:authenticated")},
        {**TOKEN, "groups": (*TOKEN["groups"], "system:masters")},
        {**TOKEN, "groups": TOKEN["groups"][1:]},
        {**TOKEN, "username": "system:bootstrap:abc12"},
        {**TOKEN, "username": "system:bootstrap:ABC123"},
        {**TOKEN, "username": "system:bootstrap:abc12\u0663"},
        {**TOKEN, "username": "mallory"},
        {"username": "system:node:worker-1", "groups": NODE_GROUPS},
        {"username": "system:node:worker-2", "groups": NODE_GROUPS},
        {"username": "", "groups": ()},
    ],
)
def test_only_a_configured_bootstrapper_may_ask_for_a_new_node(who: dict[str, Any]) -> None:
    assert judged(client(**who)).act is Act.IGNORE


def test_no_bootstrapper_configured_means_nobody() -> None:
    assert judged(client(), bootstrappers=()).act is Act.IGNORE
    assert judged(serving(), facts(node()), serving=False).act is Act.IGNORE


def test_other_signers_are_not_ours() -> None:
    assert judge_requests([client(signer_name="example.org/mine")], facts(), POLICY, NOW) == []
    assert isinstance(shape_of(client(signer_name="kubernetes.io/kube-apiserver-client").spec), Misshapen)


# -- trust


@pytest.mark.parametrize(
    ("known", "rule"),
    [
        (facts(invitations=()), "invited"),
        (facts(invitations=[invited("worker-2")]), "invited"),
        (facts(node()), "new node"),
        (facts(invitations=[invited(node="worker-9")]), "host is free"),
        (facts(invitations=[invited(), invited(source="BareMetalHost other/worker-1")]), "one host"),
        (facts(invitations=[invited(since=None)]), "window"),
        (facts(invitations=[invited(since=NOW - 60 - 7200 - 1)]), "window"),
        (facts(invitations=[invited(since=NOW - 60 + 11)]), "window"),
        (facts(invitations=[invited(since=NOW - 600, until=NOW - 61)]), "window"),
        (facts(used=Known({"worker-1": Use("csr-0", "uid-0", NOW - 300)}, NOW)), "single use"),
        (facts(crowd=Known(Crowd(101, 100), NOW)), "no flood"),
    ],
)
def test_a_rule_that_does_not_hold_leaves_it_pending_with_the_reason(known: Facts, rule: str) -> None:
    verdict = judged(client(), known)
    assert verdict.act is Act.LEAVE
    assert failed(verdict) == {rule}
    assert verdict.unknown_name is (rule == "invited")


def test_the_edges_of_the_window() -> None:
    made = NOW - 60
    for since, act in ((made + 10, Act.APPROVE), (made - 7140, Act.APPROVE), (made - 7201, Act.LEAVE)):
        assert judged(client(made=made), facts(invitations=[invited(since=since)])).act is act, since


def test_our_own_clock_closes_windows_and_opens_none() -> None:
    """However wrong it is: the times that count are the API server's and the inventory's."""
    late, early = client(made=NOW - 600 + 7201), client(made=NOW - 611)
    for off in (-1e6, -7200.0, 0.0, 7200.0, 1e6):
        for request in (late, early):
            assert judge_request(request, facts(), POLICY, NOW + off).act is Act.LEAVE, off
    for off, act in ((-1e6, Act.APPROVE), (6000.0, Act.APPROVE), (7200.0, Act.LEAVE)):
        assert judge_request(client(), facts(), POLICY, NOW + off).act is act, off


def test_a_request_held_back_until_its_window_closed_is_not_approved_any_more() -> None:
    """Made in time, but the Fleet was paused for hours: whoever asks now may be somebody else."""
    assert judged(client(made=NOW - 7300), facts(invitations=[invited(since=NOW - 7400)])).act is Act.LEAVE


def test_a_host_expected_anew_may_come_again_and_a_crash_in_between_costs_nothing() -> None:
    before = Known({"worker-1": Use("csr-0", "uid-0", NOW - 700)}, NOW)
    assert judged(client(), facts(used=before)).act is Act.APPROVE, "provisioned anew since"
    ours = Known({"worker-1": Use("csr-1", "uid-csr-1", NOW - 60)}, NOW)
    assert judged(client(), facts(used=ours)).act is Act.APPROVE, "reserved, but the approval was not sent"


def test_two_requests_for_one_host_are_left_to_a_person() -> None:
    verdicts = judge_requests([client(), client(csr="csr-9", request=pem(key=key(1)))], facts(), POLICY, NOW)
    assert [one.act for one in verdicts] == [Act.LEAVE, Act.LEAVE]
    assert all("csr-" in one.why for one in verdicts)
    late = client(csr="csr-9", made=NOW - 90_000)
    assert {one.csr: one.act for one in judge_requests([client(), late], facts(), POLICY, NOW)}["csr-1"] is Act.APPROVE


def decided(request: SigningRequest, *types: str) -> SigningRequest:
    said = tuple(Condition(type=one, status="True") for one in types)
    return msgspec.structs.replace(request, status=msgspec.structs.replace(request.status, conditions=said))


def test_what_is_decided_stays_so() -> None:
    for type in ("Approved", "Denied", "Failed"):
        assert judged(decided(client(), type)).act is Act.DONE


@pytest.mark.parametrize(
    ("rival", "act"),
    [
        (decided(client(csr="csr-0", made=NOW - 90), "Approved"), Act.LEAVE),
        (decided(client(csr="csr-0", made=NOW - 90, **TOKEN), "Approved"), Act.LEAVE),
        (decided(client(csr="csr-0", made=NOW - 90), "Denied"), Act.APPROVE),
        (decided(client(csr="csr-0", made=NOW - 90), "Approved", "Failed"), Act.APPROVE),
        (decided(client("worker-2", csr="csr-0", made=NOW - 90), "Approved"), Act.APPROVE),
        (decided(client(csr="csr-0", made=NOW - 700), "Approved"), Act.APPROVE),  # before it was expected anew
        (decided(client(csr="csr-0", username="system:node:worker-1", groups=NODE_GROUPS), "Approved"), Act.APPROVE),
        (decided(serving(csr="csr-0"), "Approved"), Act.APPROVE),
    ],
)
def test_whoever_was_let_in_by_somebody_else_counts_too(rival: SigningRequest, act: Act) -> None:
    """Of two rivals a person approved one with kubectl: the other must not follow as if it were alone now."""
    verdict = judged(client(), facts(admitted=admitted_by([rival, client()])))
    assert verdict.act is act, verdict.why
    if act is Act.LEAVE:
        assert failed(verdict) == {"single use"}
        assert "worker-1 was let in by csr-0 already" in verdict.why


def test_an_approval_that_was_not_sent_does_not_outweigh_somebody_else_s() -> None:
    ours = Known({"worker-1": Use("csr-1", "uid-csr-1", NOW - 60)}, NOW)
    theirs = admitted_by([decided(client(csr="csr-0", made=NOW - 90), "Approved")])
    assert failed(judged(client(), facts(used=ours, admitted=theirs))) == {"single use"}


def test_a_host_with_two_names_comes_in_under_one_of_them() -> None:
    """A machine's own name and the name its cloud gave it; a BareMetalHost's and that of the Machine it is for."""
    both = [invited("worker-1", also=frozenset({"m-1"})), invited("m-1", also=frozenset({"worker-1"}), source="M m-1")]
    one, other = client(), client("m-1", csr="csr-9")
    assert judged(one, facts(invitations=both)).act is Act.APPROVE
    verdicts = judge_requests([one, other], facts(invitations=both), POLICY, NOW)
    assert [failed(verdict) for verdict in verdicts] == [{"contested"}, {"contested"}]
    for known, rule in (
        (facts(invitations=both, used=Known({"m-1": Use("csr-0", "u", NOW - 300)}, NOW)), {"single use"}),
        (facts(invitations=both, used=Known({"m-1": Use("csr-0", "u", NOW - 700)}, NOW)), set()),
        (facts(node("m-1", "10.0.0.9"), invitations=both), {"host is free"}),
        (facts(invitations=[both[0], dataclasses.replace(both[1], node="worker-x")]), {"host is free"}),
        (facts(node("m-1", "10.0.0.9"), invitations=[invited("worker-1")]), set()),
    ):
        assert failed(judged(one, known)) == rule


def test_what_a_person_can_do_is_said() -> None:
    """Expecting a host is for requests to come: the one that is pending already needs another word."""
    for those in ([], [invited(since=NOW)], [invited(since=0)]):
        why = judged(client(), facts(invitations=those)).why
        assert "`hostler join approve csr-1`" in why
        assert "`hostler join expect worker-1` before it asks once more" in why


@pytest.mark.parametrize(
    ("sans", "known", "act"),
    [
        (("worker-1", "10.0.0.7"), facts(node()), Act.LEAVE),
        (("worker-1",), facts(), Act.LEAVE),
        (("worker-1", "10.0.0.1"), facts(Node(metadata=Metadata(name="worker-1"))), Act.WAIT),
        (("worker-1",), facts(Node(metadata=Metadata(name="worker-1"))), Act.APPROVE),
        (("localhost",), facts(node("worker-1", "localhost")), Act.LEAVE),
        (("127.0.0.1",), facts(node("worker-1", "127.0.0.1")), Act.LEAVE),
        (("kubernetes.default.svc",), facts(node("worker-1", "kubernetes.default.svc")), Act.LEAVE),
        (("kubernetes.default",), facts(node("worker-1", "kubernetes.default")), Act.LEAVE),
        (("web.shop.svc.corp.test",), facts(node("worker-1", "web.shop.svc.corp.test")), Act.LEAVE),
        (("fe80::1",), facts(node("worker-1", "fe80::1%eth0", "fe80::1")), Act.LEAVE),
        (("fd00::2",), facts(node("worker-1", "fd00::2"), node("worker-2", "FD00:0::2")), Act.LEAVE),
        (("WORKER-2.",), facts(node("worker-1", "worker-2"), node("worker-2", "10.0.0.2")), Act.LEAVE),
        (("svc.example.org",), facts(node("worker-1", "svc.example.org")), Act.APPROVE),
        (("10.0.0.2",), facts(node("worker-1", "10.0.0.2"), node("worker-2", "10.0.0.2")), Act.LEAVE),
        (("10.0.0.2",), facts(node("worker-1", "::ffff:10.0.0.2"), node("worker-2", "10.0.0.2")), Act.LEAVE),
        (("10.0.0.9",), facts(node(), invitations=[invited(addresses=frozenset({"10.0.0.9"}))]), Act.APPROVE),
        (("10.0.0.9",), facts(node(), invitations=[invited("worker-2", addresses=frozenset({"10.0.0.9"}))]), Act.LEAVE),
    ],
)
def test_serving_names_must_be_the_nodes_own(sans: tuple[str, ...], known: Facts, act: Act) -> None:
    assert judged(serving("worker-1", *sans), known).act is act


def test_no_worker_gets_a_certificate_for_where_the_api_server_is() -> None:
    """It writes its own addresses; with such a certificate it could pose as the API server."""
    for at in ("10.0.0.5", "api.example.org"):
        worker = node("worker-1", at)
        master = msgspec.structs.replace(
            worker, metadata=Metadata(name="worker-1", labels={"node-role.kubernetes.io/control-plane": ""})
        )
        assert judged(serving("worker-1", at), facts(worker)).act is Act.APPROVE
        assert failed(judged(serving("worker-1", at), facts(worker), api_server=at)) == {"names of nodes"}
        assert judged(serving("worker-1", at), facts(master), api_server=at).act is Act.APPROVE, "it may be there"


def test_a_renewal_needs_the_live_certificate_with_the_same_names() -> None:
    request = serving("worker-1", "worker-1", "10.0.0.7")
    live = Live("system:node:worker-1", frozenset({"worker-1"}), frozenset({"10.0.0.7"}))
    cases: dict[Act, list[Any]] = {
        Act.APPROVE: [Known(live, NOW)],
        Act.LEAVE: [
            Known(dataclasses.replace(live, name="system:node:worker-2"), NOW),
            Known(dataclasses.replace(live, ips=frozenset()), NOW),
            Known(dataclasses.replace(live, dns=frozenset({"worker-1", "more"})), NOW),
            Unknown("it does not answer"),
        ],
    }
    for act, lives in cases.items():
        for one in lives:
            assert judged(request, facts(node(), live={request.metadata.uid: one})).act is act, one
    another = facts(node(), node("worker-2", "10.0.0.7"), live={request.metadata.uid: Known(live, NOW)})
    assert judged(request, another).act is Act.LEAVE, "what another node has is not given away"


# -- properties

UNKNOWNS = ("nodes", "invited", "used", "crowd")


def test_nothing_is_approved_on_an_unknown_fact() -> None:
    for count in range(1, len(UNKNOWNS) + 1):
        for which in itertools.combinations(UNKNOWNS, count):
            unknown: Any = {name: Unknown("not read yet") for name in which}
            verdict = judged(client(), facts(**unknown))
            assert verdict.act is Act.WAIT, which
            assert "not" in verdict.why
    for name in ("nodes", "crowd"):
        assert judged(serving(), facts(node(), **dict[str, Any]({name: Unknown("not read yet")}))).act is Act.WAIT
    no_time = msgspec.structs.replace(client(), metadata=Metadata(name="csr-1", uid="u", creation_timestamp=""))
    assert judged(no_time).act is Act.WAIT


GOOD_CLIENT, GOOD_SERVING = client(), serving()
SHAPES = {CLIENT: Shape("worker-1"), SERVING: Shape("worker-1", frozenset({"worker-1"}), frozenset({"10.0.0.1"}))}


@settings(max_examples=600, deadline=None)
@given(data=st.data(), which=st.sampled_from(["client", "serving"]))
def test_any_mutation_of_a_good_request_is_not_approved(data: st.DataObject, which: str) -> None:
    """Whatever byte of the text, whoever asks, whatever usage: only the very request a kubelet made is approved."""
    good, known = (GOOD_CLIENT, facts()) if which == "client" else (GOOD_SERVING, facts(node()))
    assert judged(good, known).act is Act.APPROVE
    spec = good.spec
    field = data.draw(st.sampled_from(["byte", "insert", "delete", "signer_name", "username", "groups", "usages"]))
    text = spec.request
    at = data.draw(st.integers(0, len(text) - 1))
    changed: dict[str, Any]
    match field:
        case "byte":
            new = bytes([data.draw(st.integers(0, 255).filter(lambda one: one != text[at]))])
            changed = {"request": text[:at] + new + text[at + 1 :]}
        case "insert":
            changed = {"request": text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[at:]}
        case "delete":
            # The last byte is the line end, which a kubelet may leave out.
            changed = {"request": text[: min(at, len(text) - 2)] + text[min(at, len(text) - 2) + 1 :]}
        case "signer_name" | "username":
            old = getattr(spec, field)
            changed = {field: data.draw(st.text(max_size=60).filter(lambda one: one != old))}
        case _:
            old = getattr(spec, field)
            words = st.lists(st.sampled_from([*old, "system:masters", "cert sign", "x", "server auth"]), max_size=5)
            changed = {field: data.draw(words.map(tuple).filter(lambda one: sorted(one) != sorted(old)))}
    mutated = msgspec.structs.replace(good, spec=msgspec.structs.replace(spec, **changed))
    verdict = judged(mutated, known)
    assert verdict.act is not Act.APPROVE, (field, verdict)


# One whose signature ends in zero bits: the count of unused bits before it can be another, and it reads the same.
ZERO_BITS = b"""-----BEGIN CERTIFICATE REQUEST-----
MIHxMIGYAgEAMDYxFTATBgNVBAoMDHN5c3RlbTpub2RlczEdMBsGA1UEAwwUc3lz
dGVtOm5vZGU6d29ya2VyLTEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQruGtC
8o8yJPndhKAmOiEswxqvsO+ynenirG/RARa75B8br2cbYKO+eswC4Qx+A+JIejPH
5AoQG0KeVDz/jp4doAAwCgYIKoZIzj0EAwIDSAAwRQIhAIjlJZrBi1axafphXat2
z8B+cEiBJiHhBzTbzR7eCyRIAiBs+jcAIWO/7Qx0srzZN9nt55aU5VchG08TIjbh
LPPj4A==
-----END CERTIFICATE REQUEST-----
"""


def test_bits_that_nobody_signed_count_too() -> None:
    assert isinstance(shape_of(client(request=ZERO_BITS).spec), Shape)
    changed = ZERO_BITS[:269] + b"Q" + ZERO_BITS[270:]
    assert isinstance(shape_of(client(request=changed).spec), Misshapen)


def test_every_single_byte_counts() -> None:
    """Exhaustive: no byte of the text can be another one. Some make the parser raise what is no ValueError."""
    text = GOOD_CLIENT.spec.request
    for at in range(len(text)):
        for new in {text[at] ^ 1, text[at] ^ 16, 0, 65, 255} - {text[at]}:
            changed = text[:at] + bytes([new]) + text[at + 1 :]
            spec = msgspec.structs.replace(GOOD_CLIENT.spec, request=changed)
            assert isinstance(shape_of(spec), Misshapen), (at, new)


@settings(max_examples=200, deadline=None)
@given(request=st.binary(max_size=300))
def test_no_bytes_break_the_reader(request: bytes) -> None:
    for text in (request, b"-----BEGIN CERTIFICATE REQUEST-----\n" + request):
        assert isinstance(shape_of(msgspec.structs.replace(GOOD_CLIENT.spec, request=text)), Misshapen)


def test_a_node_with_many_requests_is_asked_once_and_crowds_out_nobody() -> None:
    many = [Verdict(f"csr-{number}", f"uid-{number}", Act.LEAVE, "", node="rogue") for number in range(99)]
    others = [Verdict(f"o-{number}", f"o-{number}", Act.LEAVE, "", node=f"w-{number}") for number in range(30)]
    first = kubelets_to_ask([*many, *others], {})
    assert first == ["rogue", *(f"w-{number}" for number in range(LIVE_MOST - 1))]
    asked = {one.uid: NOW for one in (*many, *others) if one.node in first}
    assert kubelets_to_ask([*many, *others], asked)[:11] == [f"w-{number}" for number in range(19, 30)]


def test_a_node_without_addresses_waits_and_is_not_refused() -> None:
    bare = Node(metadata=Metadata(name="worker-1"), status=NodeStatus())
    assert judged(serving("worker-1", "worker-1", "10.0.0.1"), facts(bare)).act is Act.WAIT


VAULT = "vault.corp.example"


@pytest.mark.parametrize(
    ("limits", "more", "failing"),
    [
        ({}, {}, ""),
        ({"names": (r"worker-[0-9]+",)}, {}, f"{VAULT} matches no expression"),
        ({"names": (r"worker-[0-9]+", r"vault\.corp\.example")}, {}, ""),
        ({"names": (r"worker-[0-9]+", r"vault")}, {}, f"{VAULT} matches no expression"),
        ({"names": (r"worker-[0-9]+(\.corp\.example)?", r"vault\.corp\.example")}, {}, ""),
        ({"names": ("(",)}, {}, "names[0] is not a regular expression"),
        ({"names": ("(a+)+b",)}, {}, "names[0] repeats a group"),
        ({"prefixes": ("192.168.0.0/16",)}, {}, "10.0.0.1 is in no network"),
        ({"prefixes": ("192.168.0.0/16", "10.0.0.0/8")}, {}, ""),
        ({"prefixes": ("fd00::/8",)}, {}, "10.0.0.1 is in no network"),
        ({"prefixes": ("10.0.0.0/8", "ten")}, {}, "prefixes[1] is not a network"),
        ({"max_days": 1}, {}, ""),
        ({"max_days": 1}, {"expiration_seconds": 86400}, ""),
        ({"max_days": 1}, {"expiration_seconds": 86401}, "maxDays is 1"),
    ],
)
def test_the_fleet_limits_serving_certificates(limits: dict[str, Any], more: dict[str, Any], failing: str) -> None:
    """A kubelet writes its own addresses, so it can list a name that is not a node's."""
    known = facts(node("worker-1", "10.0.0.1", VAULT), limits=Known(ServingLimits(**limits), NOW))
    verdict = judged(serving("worker-1", "worker-1", "10.0.0.1", VAULT, **more), known)
    assert verdict.act is (Act.LEAVE if failing else Act.APPROVE)
    assert failing in verdict.why


def test_no_serving_certificate_while_the_fleets_limits_are_unknown() -> None:
    assert judged(serving(), facts(node(), limits=Unknown("the Fleet is still being read"))).act is Act.WAIT


# -- when it looks again


@pytest.mark.parametrize("unread", ["nodes", "invited", "used", "crowd"])
def test_a_request_that_waits_for_what_is_read_is_looked_at_soon(unread: str) -> None:
    """An inventory without objects sends no event once it is read: nothing else would bring the request back."""
    missing: dict[str, Any] = {unread: Unknown("it is still being read")}
    wake = decide([client()], facts(**missing), POLICY, NOW).wake
    assert wake == UNREAD_SECONDS
    assert wake < AGAIN_SECONDS


def test_a_request_that_is_let_in_is_not_looked_at_again() -> None:
    assert decide([client()], facts(), POLICY, NOW).wake is None

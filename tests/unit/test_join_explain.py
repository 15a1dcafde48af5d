"""What `explain` and `plan` say of a certificate request is what the controller does with it."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.fleet import ExpectedHost, Fleet, FleetSpec, JoinPolicy
from hostler.host.facts import Known
from hostler.instant import iso
from hostler.join.controller import KEY, JoinReconciler
from hostler.join.decide import BATCH, REMEMBERED_SECONDS, decide
from hostler.join.invitations import OLDER, SOURCES
from hostler.join.model import SIGNING_REQUEST, USED, SigningRequest, Use, Verb
from hostler.join.observe import SOURCE_INDEXES, Caches, Memory, line_of
from hostler.join.status import HubReport, explain_request
from hostler.kube.kinds import CONFIG_MAP, FLEET, NODE
from hostler.kube.records import Condition, Metadata, Node
from tests.sizes import examples
from tests.unit.dry_runs import DryRun, writes_of
from tests.unit.joining import NOW, POLICY, client, facts, invited, node, serving

NAMES = ("worker-1", "worker-2", "worker-3")


@st.composite
def requests(draw: st.DrawFn, csr: str) -> SigningRequest:
    name = draw(st.sampled_from(NAMES))
    made = draw(st.sampled_from([NOW - 60, NOW - 50_000]))
    found = serving(name, csr=csr) if draw(st.booleans()) else client(name, csr=csr, made=made)
    match draw(st.sampled_from(["well", "well", "well", "stranger", "decided"])):
        case "stranger":
            found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, username="eve"))
        case "decided":
            done = msgspec.structs.replace(found.status, conditions=(Condition(type="Approved", status="True"),))
            found = msgspec.structs.replace(found, status=done)
    return found


@st.composite
def keepers(draw: st.DrawFn) -> JoinReconciler:
    run = DryRun("join")
    expected = [
        ExpectedHost(name=name, since=iso(NOW - 600), until=iso(NOW + 600))
        for name in sorted(draw(st.sets(st.sampled_from(NAMES))))
    ]
    fleet = Fleet(metadata=Metadata(name="cluster"), spec=FleetSpec(join=JoinPolicy(expected=tuple(expected))))
    used = {
        name: line_of(Use("csr-0", "uid-0", NOW - draw(st.sampled_from([100.0, 2 * REMEMBERED_SECONDS]))))
        for name in sorted(draw(st.sets(st.sampled_from(("worker-1", "gone")))))
    }
    memory = Memory(metadata=Metadata(name=USED, namespace="hostler"), data=used)
    caches = Caches(
        requests=run.watch(
            SIGNING_REQUEST, SigningRequest, *(draw(requests(f"csr-{number}")) for number in range(1, 5))
        ),
        sources={
            kind: run.watch(kind, record, versions=OLDER.get(kind, ()), indexes=SOURCE_INDEXES)
            for kind, record in SOURCES.items()
        },
        memory=run.watch(CONFIG_MAP, Memory, *([memory] if draw(st.booleans()) else [])),
        nodes=run.watch(NODE, Node, *(node(name) for name in sorted(draw(st.sets(st.sampled_from(NAMES)))))),
        fleet=run.watch(FLEET, Fleet, fleet),
        namespace="hostler",
    )
    if draw(st.booleans()):
        caches.memory.problem = draw(st.sampled_from(["", "it cannot be read"]))
    return JoinReconciler(
        caches, run.writer, HubReport(run.recorder, run.metrics), POLICY, clock=lambda: NOW,
    )  # fmt: skip


def planned(keeper: JoinReconciler) -> list[tuple[str, str, str]]:
    """What the explanations of all requests say would be written."""
    found = (explain_request(csr, keeper.decision, "").actions for csr in keeper.decision.verdicts)
    return [(action.verb, action.target, action.why) for actions in found for action in actions]


def as_explained(write: tuple[str, str, str]) -> tuple[str, str, str]:
    """An approval is a patch of the request; our memory has a namespace."""
    verb, target, why = write
    kind = target.partition("/")[0]
    return "approve" if kind == "certificatesigningrequest" else verb, target.replace("/hostler/", "/"), why


@settings(max_examples=examples(300), deadline=None)
@given(keepers())
def test_what_is_planned_is_what_the_controller_sends(keeper: JoinReconciler) -> None:
    sent = [as_explained(write) for write in writes_of(lambda: keeper.reconcile(KEY))]
    plan = planned(keeper)
    assert set(plan) == set(sent)
    assert len(sent) == len(set(sent)), "nothing is sent twice"
    carried = [write for batch in keeper.decision.batches for write in (batch.memory, *batch.approvals) if write]
    assert [(write.verb, write.name) for write in carried] == [
        (verb, target.partition("/")[2]) for verb, target, _ in sent
    ]


def test_no_machine_is_let_in_before_it_is_remembered() -> None:
    many = [client(f"w-{number}", csr=f"csr-{number}") for number in range(BATCH + 1)]
    known = facts(invitations=[invited(f"w-{number}") for number in range(BATCH + 1)])
    for remembers, verbs in ((False, [Verb.CREATE, Verb.PATCH]), (True, [Verb.PATCH, Verb.PATCH])):
        decision = decide(many, known, POLICY, NOW, remembers=remembers)
        assert [batch.memory.verb for batch in decision.batches if batch.memory is not None] == verbs
        for batch in decision.batches:
            assert batch.memory is not None
            assert {write.name for write in batch.approvals} == {use.csr for use in batch.memory.lines.values() if use}


def test_a_host_let_in_long_ago_is_forgotten_unless_it_is_expected() -> None:
    long_ago = NOW - REMEMBERED_SECONDS - 1
    used = {name: Use("csr-0", "uid-0", long_ago) for name in ("gone", "worker-2")}
    known = facts(invitations=[invited(), invited("worker-2")], used=Known(used, NOW))
    (batch,) = decide([client()], known, POLICY, NOW).batches
    assert batch.memory is not None
    assert [name for name, use in batch.memory.lines.items() if use is None] == ["gone"]

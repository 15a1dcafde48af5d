"""A node is a VM by rank of evidence, in both byte orders of a UUID, and never by a guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.host.identity import (
    Claimant,
    Doubt,
    Machine,
    NotFound,
    Rank,
    Refusal,
    Same,
    claim,
    claimant_of,
    named_node,
    provider_uuid,
    rank_of,
    remedy,
    same_name,
    settle,
)
from hostler.kube.records import Metadata, Node, NodeInfo, NodeSpec, NodeStatus
from hostler.uuids import canonical, normalise, same_uuid, swapped

BIOS = "42371a2b-3c4d-5e6f-7081-92a3b4c5d6e7"
TURNED = "2b1a3742-4d3c-6f5e-7081-92a3b4c5d6e7"
OTHER = "00112233-4455-6677-8899-aabbccddeeff"
CLUSTER = "c1d2e3f4"


def node(name: str = "w1", provider: str = "", system: str = "", machine: str = "") -> Claimant:
    made = Node(
        metadata=Metadata(name=name),
        spec=NodeSpec(provider_id=provider),
        status=NodeStatus(node_info=NodeInfo(system_uuid=system)),
    )
    return claimant_of(made, [machine] if machine else [])


def identified(given_node: Claimant, *vms: Machine) -> object:
    return claim(given_node, vms, CLUSTER).answer


@pytest.mark.parametrize(
    "text", [BIOS, BIOS.upper(), f"{{{BIOS}}}", BIOS.replace("-", ""), f" {BIOS}\n", f"urn:uuid:{BIOS}"]
)
def test_spellings_of_one_uuid(text: str) -> None:
    assert normalise(text) == BIOS.replace("-", "")
    assert same_uuid(text, TURNED)


@pytest.mark.parametrize(
    "text",
    ["", "x", BIOS[:-1], "0" * 32, "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009"],
)
def test_what_is_no_identity_equals_nothing_not_even_itself(text: str) -> None:
    assert normalise(text) is None
    assert not same_uuid(text, text)


@given(st.uuids())
def test_both_byte_orders_are_one_machine(uuid: object) -> None:
    digits = str(uuid).replace("-", "")
    assert swapped(swapped(digits)) == digits
    assert canonical(digits) == canonical(swapped(digits))


def test_a_provider_id_of_another_platform_has_no_vsphere_uuid() -> None:
    assert provider_uuid(f"vsphere://{BIOS}") == canonical(BIOS)
    assert provider_uuid(f"aws://{BIOS}") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("w1", "W1", True),
        ("w1", "w1.example.com", True),
        ("w1.example.com", "W1", True),
        ("w1.example.com", "w1.example.com", True),
        ("w1.a.example", "w1.b.example", False),
        ("w1", "w10", False),
        ("w1", "", False),
        ("w1", ".example.com", False),
    ],
)
def test_names_are_equal_in_any_case_by_first_label(one: str, other: str, same: bool) -> None:
    assert same_name(one, other) is same


@pytest.mark.parametrize(
    ("value", "said"),
    [("", None), ("w1", "w1"), (f"{CLUSTER}/w1", "w1"), ("other/w1", ""), ("/w1", ""), (f"{CLUSTER}/", "")],
)
def test_an_attribute_names_a_node_or_another_clusters(value: str, said: str | None) -> None:
    assert named_node(value, CLUSTER) == said
    assert named_node("/w1", "") == "", "while our own name is not known, no cluster's node is ours"


RANKS = [
    (node(), Machine("vm-1", "x", (BIOS,), attribute="w1"), Rank.VCENTER),
    (node(system=BIOS), Machine("vm-1", "x", attribute="w1"), Rank.VCENTER),
    (node(system=OTHER), Machine("vm-1", "x", (BIOS,), attribute="w1"), None),
    (node(system=OTHER), Machine("vm-1", "x", (BIOS,), attribute="w1", marked="w1"), Rank.VCENTER),
    (node(system=OTHER), Machine("vm-1", "x", (BIOS,), attribute=f"{CLUSTER}/w1"), Rank.VCENTER),
    (node(), Machine("vm-1", "x", (BIOS,), marked="w1"), Rank.VCENTER),
    (node(machine=f"vsphere://{BIOS}"), Machine("vm-1", "x", (BIOS,)), Rank.MACHINE),
    (node(system=TURNED), Machine("vm-1", "W1", (BIOS,)), Rank.NAME),
    (node(provider=f"vsphere://{BIOS}"), Machine("vm-1", "x", (BIOS,), guest="w1.example.com"), Rank.NAME),
    (node(), Machine("vm-1", "w1", (BIOS,)), Rank.NAME),
    (node(system=BIOS), Machine("vm-1", "w1"), Rank.NAME),
    (node(), Machine("vm-1", "w1", (BIOS,), guest="w2"), None),
    (node(provider=f"vsphere://{BIOS}"), Machine("vm-1", "x", (BIOS,)), Rank.PROVIDER_ID),
    (node(system=BIOS.upper()), Machine("vm-1", "x", (BIOS,)), Rank.SYSTEM_UUID),
    (node(system=OTHER), Machine("vm-1", "w1", (BIOS,)), None),
    (node(system=BIOS), Machine("vm-1", "w1", (BIOS,), attribute="w2"), None),
    (node(system=BIOS), Machine("vm-1", "w1", (BIOS,), attribute="other/w1"), None),
]


@pytest.mark.parametrize(("given_node", "vm", "rank"), RANKS)
def test_the_rank_of_each_kind_of_evidence(given_node: Claimant, vm: Machine, rank: Rank | None) -> None:
    assert rank_of(given_node, vm, CLUSTER) == rank


def test_found_by_name_only_where_a_uuid_cannot_contradict() -> None:
    assert isinstance(identified(node(), Machine("vm-1", "w1", (BIOS,))), Same)
    assert isinstance(identified(node(system=BIOS), Machine("vm-1", "w1")), Same)
    rebuilt = identified(node(system=BIOS), Machine("vm-1", "w1", (OTHER,)))
    assert isinstance(rebuilt, Doubt)
    assert rebuilt.reason is Refusal.OTHER_UUID


def test_two_candidates_are_a_refusal() -> None:
    torn = node(provider=f"vsphere://{BIOS}", system=OTHER)
    for who, *vms in (
        (node(system=BIOS), Machine("vm-1", "a", (BIOS,)), Machine("vm-2", "b", (TURNED,))),
        (node(system=BIOS), Machine("vm-1", "w1", (BIOS,)), Machine("vm-2", "copy", (BIOS,))),
        (node(), Machine("vm-1", "w1"), Machine("vm-2", "w1")),
        (torn, Machine("vm-1", "a", (BIOS,)), Machine("vm-2", "b", (OTHER,))),
    ):
        found = identified(who, *vms)
        assert isinstance(found, Doubt)
        assert (found.reason, found.machine) == (Refusal.SEVERAL_VMS, None)
        assert "vm-1 and vm-2" in found.why


def test_a_proven_vm_beats_what_else_the_kubelet_says() -> None:
    own = Machine("vm-1", "w1", (BIOS,))
    torn = claim(node(provider=f"vsphere://{OTHER}", system=BIOS), [own, Machine("vm-2", "x", (OTHER,))], CLUSTER)
    assert torn.answer == Same(own, Rank.NAME, "its UUID and its name are those of VM w1")
    assert torn.ranks == {"vm-1": Rank.NAME}, "and it claims no other"


def test_a_word_of_vcenter_yields_to_a_proof_by_uuid() -> None:
    """Another cluster has a node of the same name, and its VM says so; only a word with the cluster decides."""
    own, theirs = Machine("vm-1", "w1", (BIOS,)), Machine("vm-2", "w1", (OTHER,), attribute="w1")
    found = identified(node(system=BIOS), own, theirs)
    assert isinstance(found, Same)
    assert found.machine == own
    whole = Machine("vm-2", "x", (OTHER,), attribute=f"{CLUSTER}/w1")
    found = identified(node(system=BIOS), own, whole)
    assert isinstance(found, Same)
    assert found.machine == whole


def test_a_bare_attribute_does_not_contradict_a_uuid() -> None:
    """Two clusters share a vCenter and a node's name: the other cluster's VM is not ours by its attribute."""
    theirs = Machine("vm-2", "w1", (OTHER,), attribute="w1")
    found = identified(node(system=BIOS), theirs)
    assert isinstance(found, Doubt)
    assert (found.reason, found.machine) == (Refusal.OTHER_UUID, None)
    assert "attribute hostler-node of VM w1 is w1, but the VM has another UUID" in found.why
    assert isinstance(identified(node(system=OTHER), theirs), Same), "whose it is by its UUID"


def test_no_candidate_is_not_found() -> None:
    assert isinstance(identified(node(system=BIOS), Machine("vm-2", "w2", (OTHER,))), NotFound)
    assert isinstance(identified(node("W1"), Machine("vm-2", "w1")), NotFound)


def test_a_vm_of_another_node_is_refused_by_name() -> None:
    found = identified(node(system=BIOS), Machine("vm-1", "w1", (BIOS,), attribute="other/w1"))
    assert isinstance(found, Doubt)
    assert found.reason is Refusal.OTHER_NODE
    assert "says that VM w1 is other/w1, not w1" in found.why


VM = Machine("vm-1", "w1", (BIOS,))
NAMED, WEAK = claim(node(system=BIOS), [VM], CLUSTER), claim(node("w2", system=BIOS), [VM], CLUSTER)


@pytest.mark.parametrize(
    ("own", "others", "by_uuid", "refused"),
    [
        (NAMED, {}, False, None),
        (NAMED, {"w2": Rank.SYSTEM_UUID, "w3": Rank.PROVIDER_ID}, False, None),
        (NAMED, {"w2": Rank.NAME}, False, Refusal.CONTESTED),
        (NAMED, {"w2": Rank.MACHINE}, False, Refusal.OUTRANKED),
        (NAMED, {"w2": Rank.VCENTER, "w3": Rank.NAME}, True, Refusal.OUTRANKED),
        (WEAK, {}, False, Refusal.UNPROVEN),
        (WEAK, {}, True, None),
        (WEAK, {"w1": Rank.NAME}, True, Refusal.OUTRANKED),
        (WEAK, {"w3": Rank.SYSTEM_UUID}, True, Refusal.CONTESTED),
    ],
)
def test_what_other_nodes_claims_do(own: object, others: dict[str, Rank], by_uuid: bool, refused: object) -> None:
    who = node() if own is NAMED else node("w2", system=BIOS)
    found = settle(who, NAMED if own is NAMED else WEAK, others, by_uuid=by_uuid)
    assert (found.reason if isinstance(found, Doubt) else None) == refused


@pytest.mark.parametrize(("stronger", "named"), [(Rank.PROVIDER_ID, True), (Rank.NAME, False)])
def test_only_a_proven_claim_takes_a_vm_away(stronger: Rank, named: bool) -> None:
    """The VM of a refused node may still be started again, so long as nobody proves that it is another's."""
    found = settle(node("w2", system=BIOS), WEAK, {"w3": stronger}, by_uuid=False)
    assert isinstance(found, Doubt)
    assert (found.reason, found.machine) == (Refusal.OUTRANKED, VM if named else None)


def test_each_refusal_says_what_the_owner_can_do() -> None:
    for reason in Refusal:
        assert f"hostler-node of its VM in vCenter to {CLUSTER}/w1" in remedy(reason, "w1", CLUSTER)
        assert "in vCenter to w1" in remedy(reason, "w1", ""), "without the cluster's name"
    assert "HOSTLER_VM_IDENTITY=uuid" in remedy(Refusal.UNPROVEN, "w1", CLUSTER)

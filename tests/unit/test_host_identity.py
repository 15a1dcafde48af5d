"""A node is matched to its machine by UUID in both byte orders, then by name, and never by a guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.host.identity import (
    Doubt,
    Machine,
    NotFound,
    Same,
    canonical,
    identify,
    normalise,
    provider_uuid,
    same_uuid,
    swapped,
)
from hostler.kube.records import Metadata, Node, NodeInfo, NodeSpec, NodeStatus

BIOS = "42371a2b-3c4d-5e6f-7081-92a3b4c5d6e7"
TURNED = "2b1a3742-4d3c-6f5e-7081-92a3b4c5d6e7"
OTHER = "00112233-4455-6677-8899-aabbccddeeff"


def node(name: str = "w1", provider: str = "", system: str = "") -> Node:
    return Node(
        metadata=Metadata(name=name),
        spec=NodeSpec(provider_id=provider),
        status=NodeStatus(node_info=NodeInfo(system_uuid=system)),
    )


@pytest.mark.parametrize(
    "text", [BIOS, BIOS.upper(), f"{{{BIOS}}}", BIOS.replace("-", ""), f" {BIOS}\n", f"urn:uuid:{BIOS}"]
)
def test_spellings_of_one_uuid(text: str) -> None:
    assert normalise(text) == BIOS.replace("-", "")
    assert same_uuid(text, TURNED)


@pytest.mark.parametrize("text", ["", "x", BIOS[:-1], "0" * 32, "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"])
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
    "given_node", [node(provider=f"vsphere://{BIOS}"), node(system=TURNED), node(system=BIOS.upper())]
)
def test_found_by_uuid_whatever_its_name(given_node: Node) -> None:
    vm = Machine("vm-1", "renamed", (BIOS,))
    assert identify(given_node, [Machine("vm-2", "w1", (OTHER,)), vm]) == Same(vm, "its UUID is that of renamed")


def test_found_by_name_only_where_a_uuid_cannot_contradict() -> None:
    assert isinstance(identify(node(), [Machine("vm-1", "w1", (BIOS,))]), Same)
    assert isinstance(identify(node(system=BIOS), [Machine("vm-1", "w1")]), Same)
    assert isinstance(identify(node(system=BIOS), [Machine("vm-1", "w1", (OTHER,))]), Doubt)


def test_two_candidates_are_a_refusal() -> None:
    clones = [Machine("vm-1", "a", (BIOS,)), Machine("vm-2", "b", (TURNED,))]
    assert identify(node(system=BIOS), clones) == Doubt("2 machines have the UUID of node w1: vm-1 and vm-2")
    assert isinstance(identify(node(), [Machine("vm-1", "w1"), Machine("vm-2", "w1")]), Doubt)
    torn = node(provider=f"vsphere://{BIOS}", system=OTHER)
    assert isinstance(identify(torn, [Machine("vm-1", "a", (BIOS,)), Machine("vm-2", "b", (OTHER,))]), Doubt)


def test_no_candidate_is_not_found() -> None:
    assert isinstance(identify(node(system=BIOS), [Machine("vm-2", "w2", (OTHER,))]), NotFound)
    assert isinstance(identify(node("W1"), [Machine("vm-2", "w1")]), NotFound)

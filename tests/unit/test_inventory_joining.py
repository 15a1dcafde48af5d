"""Layers become hosts: every machine once, nothing guessed, whatever is missing or contradictory."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hostler.inventory.joining import join_layers
from hostler.inventory.model import Holder, Layer, LayerKind, Line, Where
from hostler.inventory.picture import Picture
from hostler.inventory.states import HostKind, HostState

KEYS = [f"{kind}:{number}" for kind in LayerKind for number in range(3)]


def layer(key: str, *same_as: str, **fields: object) -> Layer:
    return replace(Layer(key, LayerKind(key.split(":")[0]), key, same_as=same_as), **fields)


@st.composite
def worlds(draw: st.DrawFn) -> list[Layer]:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return [layer(key, *draw(st.lists(st.sampled_from(KEYS), max_size=3))) for key in keys]


@given(worlds(), st.randoms(use_true_random=False))
def test_every_layer_is_in_one_host_whatever_links_say(layers: list[Layer], random: random.Random) -> None:
    hosts = join_layers(layers)
    assert sorted(key for host in hosts for key in host.layers) == sorted(one.key for one in layers)
    assert len({host.id for host in hosts}) == len(hosts)
    for host in hosts:
        kinds = [key.split(":")[0] for key in host.layers]
        assert len(set(kinds)) == len(kinds)
    shuffled = list(layers)
    random.shuffle(shuffled)
    assert join_layers(shuffled) == hosts


@given(st.lists(worlds(), max_size=6))
def test_the_picture_equals_a_join_from_nothing(steps: list[list[Layer]]) -> None:
    picture, known = Picture("boot"), dict[str, object]()
    for step in steps:
        version, before = picture.version, {host.id: host for host in picture.hosts.values()}
        now = {one.key: one for one in step}
        changed = picture.update({key: now.get(key) for key in {*known, *now}})
        known = dict(now)
        assert sorted(picture.hosts.values(), key=lambda host: host.id) == join_layers(step)
        after = picture.hosts
        assert changed == {id for id in {*before, *after} if before.get(id) != after.get(id)}
        news = picture.since(version)
        assert {host.id for host in news.hosts} | set(news.gone) == changed
        assert not news.complete


@given(worlds(), worlds())
def test_a_reader_of_another_process_gets_everything(layers: list[Layer], others: list[Layer]) -> None:
    picture = Picture("boot")
    picture.update({one.key: one for one in layers})
    for version in ("", "other.0", "boot.999999", "boot.x", "nonsense"):
        news = picture.since(version)
        assert news.complete
        assert len(news.hosts) == len(picture.hosts)


def test_a_node_on_a_vm_is_one_host_named_as_the_node() -> None:
    vm = layer("vm:1", where=Where(vcenter="vc", esxi="esx-1"), under="esxi:1")
    (host,) = join_layers([vm, layer("node:1", "vm:1", cluster="prod")])
    assert (host.id, host.name, host.kind, host.cluster) == ("vm:1", "node:1", HostKind.VM, "prod")
    assert host.where == Where(vcenter="vc", esxi="esx-1")


def test_two_nodes_that_claim_one_vm_stay_apart_with_a_note() -> None:
    hosts = join_layers([layer("vm:1"), layer("node:1", "vm:1"), layer("node:2", "vm:1")])
    assert [host.id for host in hosts] == ["node:1", "node:2", "vm:1"]
    assert "vm vm:1" in hosts[0].notes[0]
    assert "node node:2" in hosts[0].notes[0]


def test_a_contradiction_leaves_the_links_beyond_doubt() -> None:
    """The BareMetalHost and its Agent have only each other; which of two nodes they are is in doubt."""
    hosts = join_layers(
        [layer("bare-metal:1", "agent:1"), layer("agent:1"), layer("node:1", "agent:1"), layer("node:2", "agent:1")]
    )
    assert [host.layers for host in hosts] == [("bare-metal:1", "agent:1"), ("node:1",), ("node:2",)]


def test_a_chain_that_cannot_be_true_is_taken_apart() -> None:
    chain = [
        layer("vm:1", "node:1"),
        layer("node:1", "agent:1"),
        layer("agent:1", "bare-metal:1"),
        layer("bare-metal:1", "vm:2"),
        layer("vm:2"),
    ]
    assert [len(host.layers) for host in join_layers(chain)] == [1, 1, 1, 1, 1]


def test_the_state_that_counts_most_is_the_hosts() -> None:
    node = layer("node:1", "bare-metal:1", lines=(Line("node", HostState.IN_SERVICE, "It is Ready.", since=9.0),))
    metal = layer("bare-metal:1", lines=(Line("metal", HostState.PROVISIONED, "It has its image.", since=1.0),))
    (host,) = join_layers([node, metal])
    assert (host.state, host.since, host.capability) == (HostState.IN_SERVICE, 9.0, "node")
    drained = replace(node, lines=(Line("maintenance", HostState.DRAINING, "esx-1 enters.", mid_step=True),))
    (host,) = join_layers([drained, metal])
    assert host.state is HostState.DRAINING
    assert host.mid_steps == ("maintenance: esx-1 enters.",)


def test_holders_and_problems_of_every_layer_are_shown_once() -> None:
    held = Holder("ann", "disk", 1.0)
    (host,) = join_layers(
        [layer("vm:1", holders=(held,), problems=("p",)), layer("node:1", "vm:1", holders=(held,), problems=("q",))]
    )
    assert (host.holders, host.problems) == ((held,), ("p", "q"))


def test_a_layer_without_a_line_is_shown_as_unknown() -> None:
    (host,) = join_layers([layer("node:1")])
    assert (host.state, host.why) == (HostState.UNKNOWN, "Nothing reports its state.")

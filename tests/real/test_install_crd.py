"""The generated CRD on the real API server: accepted, enforced, and shown as people expect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
import pytest

from hostler.apis.fleet import NAME, PAUSES_SHOWN, Fleet, FleetStatus, Rule, doc
from hostler.cli.pause_objects import Outcome, create_pause, delete_pauses
from hostler.fleet.decide import CapabilityFacts, FleetFacts, decide_status
from hostler.install.apply import install
from hostler.install.crd import Column, definition
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import Invalid
from hostler.kube.kinds import FLEET, Kind
from hostler.kube.records import Metadata, Record
from hostler.safety.pause_state import PauseReason, PauseState, SeenPause
from hostler.sandbox import Sandbox

T = TypeVar("T")
Ask = Callable[[Callable[[Client], Awaitable[T]]], T]


@pytest.fixture
def ask(sandbox: Sandbox) -> Callable[[Callable[[Client], Awaitable[Any]]], Any]:
    """Run something with a client of the sandbox."""

    def run(work: Callable[[Client], Awaitable[Any]]) -> Any:
        async def inside() -> Any:
            async with Client(load(str(sandbox.kubeconfig))) as client:
                return await work(client)

        return asyncio.run(inside())

    return run


@pytest.fixture
def no_fleet(sandbox: Sandbox, ask: Ask[Any]) -> Iterator[None]:
    """The CRDs are there, and neither Fleet nor Pause before and after."""
    ask(install)
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


def make(spec: dict[str, Any], name: str = NAME) -> Callable[[Client], Awaitable[Fleet]]:
    return lambda client: client.create(FLEET, {"metadata": {"name": name}, "spec": spec}, type=Fleet)


def test_installing_twice_changes_nothing(sandbox: Sandbox, ask: Ask[Any]) -> None:
    assert ask(install) == "fleets.hostler.dev and pauses.hostler.dev are installed."
    kinds = ("fleets.hostler.dev", "pauses.hostler.dev")
    before = [sandbox.get("crd", kind)["metadata"] for kind in kinds]
    ask(install)
    after = [sandbox.get("crd", kind)["metadata"] for kind in kinds]
    assert [(one["generation"], one["uid"]) for one in after] == [(one["generation"], one["uid"]) for one in before]


@pytest.mark.usefixtures("no_fleet")
def test_there_is_one_fleet_and_its_name_is_cluster(ask: Ask[Any]) -> None:
    with pytest.raises(Invalid, match="there is one Fleet per cluster, and its name is 'cluster'"):
        ask(make({}, name="other"))
    assert ask(make({})).metadata.name == NAME


@pytest.mark.usefixtures("no_fleet")
@pytest.mark.parametrize("limit", [0, 3, "0%", "50%", "100%"])
def test_a_good_limit_is_kept_as_it_is_written(ask: Ask[Any], limit: int | str) -> None:
    assert ask(make({"maxUnavailable": limit})).spec.max_unavailable == limit


@pytest.mark.usefixtures("no_fleet")
@pytest.mark.parametrize("limit", [-1, "half", "101%", "50", "", "5 %"])
def test_a_bad_limit_is_refused_with_a_sentence(ask: Ask[Any], limit: int | str) -> None:
    with pytest.raises(Invalid, match=r"must be a whole number \(3\) or a percentage \(50%\)"):
        ask(make({"maxUnavailable": limit}))


@pytest.mark.usefixtures("no_fleet")
def test_what_is_of_the_wrong_type_or_too_long_is_refused(ask: Ask[Any]) -> None:
    for spec in ({"ingress": "yes"}, {"ingress": {"controlPlaneLabel": "x" * 318}}, {"maxUnavailable": 1.5}):
        with pytest.raises(Invalid):
            ask(make(spec))


@pytest.mark.usefixtures("no_fleet")
def test_kubectl_shows_it_as_people_expect(sandbox: Sandbox, ask: Ask[Any]) -> None:
    ask(make({"paused": True}))  # of an older version: the API server drops it
    assert sandbox.get("fleet", NAME)["spec"] == {}
    table = sandbox.kubectl("get", "fl").splitlines()
    assert table[0].split() == ["NAME", "READY", "PAUSED", "NODES", "HELD", "UNAVAILABLE", "CEILING", "AGE"]
    assert table[1].split()[0] == "cluster"
    assert "The stop button" in sandbox.kubectl("explain", "pause")


@pytest.mark.usefixtures("no_fleet")
def test_every_status_we_can_decide_is_accepted_and_reads_back_the_same(ask: Ask[Any]) -> None:
    long = "x" * 5000
    pauses = tuple(SeenPause(f"p{n}", f"uid-{n}", n, "y" * 253, long) for n in range(PAUSES_SHOWN + 1))
    facts = FleetFacts(
        generation=1, pause=PauseState(PauseReason.PAUSE_EXISTS, long, pauses), leader="pod-1_" + "a" * 36,
        version="0.1.0",
        capabilities=(
            CapabilityFacts("metal", True, long, long, "the provider", long), CapabilityFacts("x", False, ""),
        ),
        nodes=5000, nodes_known=True, held=2, out=tuple(f"node-{n}" for n in range(3000)), ceiling=10, limit="10",
        limit_problem=long,
    )  # fmt: skip
    status = decide_status(facts, FleetStatus(), 1_700_000_000)

    async def write(client: Client) -> Fleet:
        await make({})(client)
        body = {"status": msgspec.to_builtins(status)}
        return await client.patch(FLEET, NAME, body, type=Fleet, subresource="status")

    assert ask(write).status == status


@pytest.mark.usefixtures("no_fleet")
def test_one_person_who_pauses_twice_at_once_has_one_pause(ask: Ask[Any]) -> None:
    async def both(client: Client) -> list[Outcome]:
        return await asyncio.gather(*(create_pause(client, why=why, wait=0) for why in ("one", "two")))

    one, two = ask(both)
    assert one.name == two.name
    assert sorted("Paused already" in outcome.why for outcome in (one, two)) == [False, True]
    assert ask(lambda client: delete_pauses(client, every=False, wait=0)).paused is False


@pytest.mark.usefixtures("no_fleet")
def test_a_long_reason_does_not_keep_anybody_from_the_button(sandbox: Sandbox, ask: Ask[Any]) -> None:
    paused = ask(lambda client: create_pause(client, why="because " * 1000, wait=0))
    assert sandbox.get("pause", paused.name)["spec"]["why"].endswith("...")


# -- everything the generator can say, enforced by the real server

BARN = Kind("test.hostler.dev", "v1", "barns", "Barn", False)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Animal(Record, frozen=True):
    """One animal."""

    name: Annotated[str, doc("Its name.", pattern="^[a-z]+$", max_length=20)]
    legs: Annotated[int, doc("How many legs.", least=0, most=8, defaulted=True)] = 4


class BarnSpec(Record, frozen=True):
    """What stands in it."""

    colour: Annotated[Colour, doc("Its colour.", defaulted=True)] = Colour.RED
    animals: Annotated[
        tuple[Animal, ...],
        doc("Who lives there.", keys=("name",), most=3, rules=(Rule("self.all(a, a.legs != 3)", "no lame animals"),)),
    ] = ()
    tags: Annotated[tuple[str, ...], doc("Words.", least=1, most=2)] | None = None
    notes: Annotated[dict[str, str], doc("Anything.", most=1)] | None = None
    free: Any = None


class Barn(Record, frozen=True):
    """A barn."""

    metadata: Metadata = Metadata()
    spec: BarnSpec = BarnSpec()


@pytest.fixture(scope="module")
def barns(sandbox: Sandbox) -> Iterator[None]:
    made = definition(BARN, Barn, columns=(Column("Colour", ".spec.colour"),), short_names=("brn",))
    sandbox.apply(made)
    sandbox.kubectl("wait", "--for=condition=Established", "crd/barns.test.hostler.dev", "--timeout=60s")
    yield
    sandbox.kubectl("delete", "crd", "barns.test.hostler.dev")


def build(spec: dict[str, Any]) -> Callable[[Client], Awaitable[dict[str, Any]]]:
    return lambda client: client.create(BARN, {"metadata": {"generateName": "b-"}, "spec": spec}, type=dict[str, Any])


@pytest.mark.usefixtures("barns")
def test_defaults_are_filled_in_deep_inside(ask: Ask[Any]) -> None:
    made = ask(build({"animals": [{"name": "bella"}], "free": {"any": ["thing"]}}))
    assert made["spec"] == {
        "colour": "red", "animals": [{"name": "bella", "legs": 4}], "free": {"any": ["thing"]},
    }  # fmt: skip


@pytest.mark.usefixtures("barns")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"colour": "blue"}, "Unsupported value"),
        ({"animals": [{"name": "Bella"}]}, "should match"),
        ({"animals": [{"name": "b" * 21}]}, "Too long"),
        ({"animals": [{"name": "b", "legs": 9}]}, "less than or equal to 8"),
        ({"animals": [{"name": "b", "legs": 3}]}, "no lame animals"),
        ({"animals": [{"legs": 4}]}, "Required value"),
        ({"animals": [{"name": "b"}, {"name": "b"}]}, "Duplicate value"),
        ({"animals": [{"name": c} for c in "abcd"]}, "Too many"),
        ({"tags": []}, "at least 1 items"),
        ({"notes": {"a": "b", "c": "d"}}, "at most 1"),
    ],
)
def test_every_limit_is_enforced(ask: Ask[Any], spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        ask(build(spec))

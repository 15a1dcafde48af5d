"""Which host a machine gets: selectors, reasons, reuse, domains, policies."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.metal3 import BareMetalHost, HostSelector, Metal3Machine, Metal3MachineTemplate
from hostler.kube.records import Metadata
from hostler.metal.claiming.choose import (
    Around,
    Choice,
    Outcome,
    Policy,
    Selection,
    Wish,
    WrongSelector,
    choose,
    compile_selector,
    find_unmet,
)
from hostler.metal.claiming.free_hosts import Bag, FreeHosts, Waiting, is_free
from hostler.metal.claiming.refusal import Refusal, Refused, count_refusals, group_refusals, summarize_groups
from hostler.metal.listing import Capacity, count_capacity
from hostler.metal.names import HOST_ANNOTATION, PAUSED

REUSE = "infrastructure.cluster.x-k8s.io/node-reuse"
DOMAIN = "infrastructure.cluster.x-k8s.io/failure-domain"


def host(name: str, state: str = "available", **changes: Any) -> BareMetalHost:
    """A free host; `labels`, `annotations`, `consumer`, `image`, `error` change that."""
    spec: dict[str, Any] = {"online": False}
    if consumer := changes.pop("consumer", None):
        spec["consumerRef"] = consumer
    if changes.pop("image", False):
        spec["image"] = {"url": "x"}
    status = {"operationalStatus": "OK", "provisioning": {"state": state}, **changes.pop("status", {})}
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": "1", **changes}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, BareMetalHost)


def machine(name: str = "m", **spec: Any) -> Metal3Machine:
    return msgspec.convert({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, Metal3Machine)


def consumer(name: str, kind: str = "Metal3Machine", version: str = "infrastructure.cluster.x-k8s.io/v1beta1") -> Any:
    return {"apiVersion": version, "kind": kind, "name": name, "namespace": "n"}


# What Baremetal Operator writes for a HostClaim, which may be in any namespace.
HOST_CLAIM = {"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim", "name": "m", "namespace": "tenant"}
CLUSTER = consumer("c", "Cluster", "cluster.x-k8s.io/v1beta2")


def wish(of: Metal3Machine | None = None, **more: str) -> Wish:
    return Wish.of(of or machine(), cluster="c", **more)


def chosen(hosts: list[BareMetalHost], asked: Wish | None = None, policy: Policy = Policy(), **around: Any) -> Choice:
    return choose(asked or wish(), hosts, policy, Around(**around))


def texts(choice: Choice) -> dict[str, str]:
    return {key: why.text for key, why in choice.refused.items()}


# -- selectors


@pytest.mark.parametrize(
    ("operator", "values", "matching", "other"),
    [
        ("In", ["a", "b"], {"k": "b"}, {"k": "c"}),
        ("in", ["a"], {"k": "a"}, {}),
        ("NOTIN", ["a"], {}, {"k": "a"}),
        ("NotIn", ["a", "b"], {"k": "c"}, {"k": "b"}),
        ("Exists", [], {"k": ""}, {}),
        ("DoesNotExist", [], {"x": "1"}, {"k": "1"}),
        ("!", [], {}, {"k": "1"}),
        ("=", ["a"], {"k": "a"}, {"k": "b"}),
        ("==", ["a"], {"k": "a"}, {}),
        ("!=", ["a"], {}, {"k": "a"}),
        ("Gt", ["5"], {"k": "6"}, {"k": "5"}),
        ("gt", ["5"], {"k": "10"}, {"k": "x"}),
        ("LT", ["5"], {"k": "-1"}, {"k": "5"}),
        ("lt", ["5"], {"k": "4"}, {}),
    ],
)
def test_every_operator_in_any_case(
    operator: str, values: list[str], matching: dict[str, str], other: dict[str, str]
) -> None:
    selector = msgspec.convert(
        {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}, HostSelector
    )
    required = compile_selector(selector)
    assert find_unmet(required, matching) is None
    assert find_unmet(required, other) is not None


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ({"key": "k", "operator": "Near", "values": ["a"]}, "operator 'Near'"),
        ({"key": "k", "operator": "In", "values": []}, "at least one value"),
        ({"key": "k", "operator": "Exists", "values": ["a"]}, "takes no values"),
        ({"key": "k", "operator": "=", "values": ["a", "b"]}, "exactly one value"),
        ({"key": "k", "operator": "Gt", "values": ["many"]}, "whole number"),
        ({"key": "not a name", "operator": "Exists", "values": []}, "no label name"),
        ({"key": "k", "operator": "In", "values": ["not a value"]}, "no label value"),
    ],
)
def test_a_wrong_selector_is_a_sentence(expression: Any, says: str) -> None:
    with pytest.raises(WrongSelector, match=says):
        compile_selector(msgspec.convert({"matchExpressions": [expression]}, HostSelector))


def test_labels_and_expressions_must_all_be_met() -> None:
    asked = wish(machine(hostSelector={"matchLabels": {"rack": "r1"}, "matchExpressions": [
        {"key": "gpu", "operator": "Exists", "values": []}]}))  # fmt: skip
    both = host("both", labels={"rack": "r1", "gpu": "4"})
    choice = chosen([host("rack", labels={"rack": "r1"}), both, host("none")], asked)
    assert choice.host == both
    assert choice.refused["n/rack"].text == "its labels do not meet gpu Exists"
    assert choice.refused["n/none"].text == "its labels do not meet rack=r1"


# -- reasons


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (host("h", consumer=consumer("other")), "its consumer is Metal3Machine n/other"),
        (host("h", consumer=consumer("m", kind="Server")), "its consumer is Server n/m"),
        (host("h", consumer=HOST_CLAIM), "its consumer is HostClaim tenant/m"),
        (host("h", annotations={PAUSED: "metal3.io/hostclaim"}), "it is paused by metal3.io/hostclaim"),
        (host("h", consumer=consumer("m", version="example.org/v1")), "its consumer is Metal3Machine n/m"),
        (host("h", deletionTimestamp="now"), "it is being deleted"),
        (host("h", status={"errorType": "power error", "errorMessage": "no"}), "it reports power error: no"),
        (host("h", status={"operationalStatus": "error"}), "it reports an error"),
        (host("h", annotations={"baremetalhost.metal3.io/paused": "me"}), "it is paused by me"),
        (host("h", annotations={"capm3.metal3.io/unhealthy": ""}), "it is marked as unhealthy"),
        (host("h", annotations={"capi.metal3.io/unhealthy": ""}), "it is marked as unhealthy"),
        (host("h", annotations={"baremetalhost.metal3.io/detached": ""}), "it is detached"),
        (host("h", labels={REUSE: "md-x"}), "it is reserved for md-x"),
        (host("h", image=True), "it has an image already"),
        (host("h", "provisioning"), "it is provisioning"),
        (host("h", ""), "it has no state yet"),
        (host("h", status={"operationalStatus": "discovered"}), "its operational status is discovered"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_every_refusal_says_why(one: BareMetalHost, why: str) -> None:
    choice = chosen([one])
    assert choice.host is None
    assert texts(choice) == {"n/h": why}
    assert not is_free(one) or REUSE in one.metadata.labels


def test_a_host_of_a_host_claim_is_not_taken_though_it_is_reserved_or_named() -> None:
    labels = {REUSE: "md-a"}
    assert chosen([host("h", labels=labels, consumer=HOST_CLAIM)], wish(reuse="md-a")).host is None
    naming = msgspec.convert({"name": "m", "namespace": "n", "annotations": {HOST_ANNOTATION: "n/h"}}, Metadata)
    named = msgspec.structs.replace(machine(), metadata=naming)
    assert chosen([host("h")], wish(named)).host is not None
    choice = chosen([host("h", consumer=HOST_CLAIM)], wish(named))
    assert choice.host is None
    assert choice.why == "no host is available now: some have another consumer"


def test_no_host_at_all() -> None:
    assert chosen([]).why == "there is no host in this namespace"


def test_the_summary_names_kinds_and_not_numbers() -> None:
    few = chosen([host("a", consumer=consumer("x")), host("b", "provisioning")])
    many = chosen([host(f"a{n}", consumer=consumer(f"x{n}")) for n in range(9)] + [host("b", "inspecting")])
    assert few.why == many.why == "no host is available now: some have another consumer; some are not available yet"
    assert count_refusals(many.refused.values()) == [
        ("some have another consumer", 9),
        ("some are not available yet", 1),
    ]
    assert (
        summarize_groups(group_refusals([Refusal(Refused.UNSETTLED)]))
        == "no host is available now: some report an error"
    )


def test_its_own_host_wins_whatever_its_state_and_version() -> None:
    own = host("own", "provisioned", consumer=consumer("m"), image=True, status={"errorType": "power management error"})
    assert chosen([host("free"), own]).host == own


def test_who_is_taken_or_only_just_recovered_is_left_alone() -> None:
    hosts = [host("a"), host("b"), host("c")]
    choice = chosen(
        hosts, taken=lambda key: "Metal3Machine n/x" if key == "n/a" else "", shaky=lambda key: key == "n/b"
    )
    assert choice.host == hosts[2]
    assert texts(choice) == {"n/a": "Metal3Machine n/x is taking it", "n/b": "it showed an error a moment ago"}


# -- reuse


def test_a_reserved_host_comes_first() -> None:
    kept = host("kept", labels={REUSE: "md-a"}, consumer=CLUSTER)
    assert chosen([host("free"), kept], wish(reuse="md-a")).host == kept
    assert chosen([host("free"), kept], wish(reuse="md-b")).host == host("free")
    assert chosen([kept], wish(reuse="")).host is None


def test_it_waits_for_a_reserved_host_on_its_way() -> None:
    coming = host("coming", "deprovisioning", labels={REUSE: "md-a"}, consumer=consumer("old"), image=True)
    choice = chosen([host("free"), coming], wish(reuse="md-a"), leaving=lambda _: True)
    assert choice.host is None
    assert choice.outcome is Outcome.ON_ITS_WAY
    assert choice.why == "it waits for a host that is reserved for md-a: coming"
    # Once its machine stays, or the host fails, nobody waits for it.
    assert chosen([host("free"), coming], wish(reuse="md-a"), leaving=lambda _: False).host == host("free")
    broken = host("coming", "deprovisioning", labels={REUSE: "md-a"}, status={"errorType": "provisioning error"})
    assert chosen([host("free"), broken], wish(reuse="md-a"), leaving=lambda _: True).host == host("free")


def test_it_waits_for_a_reserved_host_that_only_our_own_pause_holds() -> None:
    """The cluster's pause is over, and that of the host is taken back in a moment; somebody else's may last."""
    for by, waits in (("metal3.io/capm3", True), ("somebody", False)):
        paused = {"baremetalhost.metal3.io/paused": by}
        kept = host("kept", "deprovisioning", labels={REUSE: "md-a"}, consumer=consumer("old"), annotations=paused)
        choice = chosen([host("free"), kept], wish(reuse="md-a"), leaving=lambda _: True)
        assert (choice.outcome is Outcome.ON_ITS_WAY) == waits
        assert choice.host == (None if waits else host("free"))
        nobodys = host("kept", labels={REUSE: "md-a"}, consumer=CLUSTER, annotations=paused)
        assert chosen([host("free"), nobodys], wish(reuse="md-a")).host == host("free"), "no machine would unpause it"


def test_an_available_reserved_host_wins_and_one_not_ready_does_not_block() -> None:
    hosts = [
        host("a-coming", "deprovisioning", labels={REUSE: "md-a", DOMAIN: "d2"}, consumer=CLUSTER),
        host("b-other", labels={REUSE: "md-a", DOMAIN: "d1"}, consumer=CLUSTER),
        host("c-wanted", labels={REUSE: "md-a", DOMAIN: "d2"}, consumer=CLUSTER),
    ]
    assert chosen(hosts, wish(reuse="md-a", domain="d2")).host == hosts[2]


def test_a_host_kept_by_another_cluster_is_another_consumers() -> None:
    kept = host("kept", labels={REUSE: "md-a"}, consumer=consumer("c2", "Cluster", "cluster.x-k8s.io/v1beta2"))
    assert chosen([kept], wish(reuse="md-a")).host is None


# -- domains and policies


def test_a_failure_domain_is_preferred_or_required() -> None:
    near, far = host("b", labels={DOMAIN: "d1"}), host("a", labels={DOMAIN: "d2"})
    assert chosen([far, near], wish(domain="d1")).host == near
    assert chosen([far], wish(domain="d1")).host == far
    strict = chosen([far], wish(domain="d1"), Policy(strict_domains=True))
    assert strict.host is None
    assert texts(strict) == {"n/a": "it is in failure domain d2, not d1"}


def test_how_many_machines_of_a_template_fit_and_what_limits() -> None:
    def fits(policy: Policy = Policy(), **spec: Any) -> Capacity:
        image = {"url": "http://x/os.raw", "checksum": "abc"}
        body = {"metadata": {"name": "t", "namespace": "n"}, "spec": {"template": {"spec": {"image": image, **spec}}}}
        return count_capacity("n/t", msgspec.convert(body, Metal3MachineTemplate), hosts, policy)

    taken = host("c", consumer=consumer("x"), labels={"rack": "1"})
    hosts = [host("a", labels={"rack": "1", DOMAIN: "one"}), host("b", labels={"rack": "2"}), taken]
    assert (fits().fit, fits().hosts, fits().limits) == (2, 3, {"some have another consumer": 1})
    assert fits(hostSelector={"matchLabels": {"rack": "1"}}).fit == 1
    assert fits(failureDomain="one").fit == 2, "preferred"
    strict = fits(Policy(strict_domains=True), failureDomain="one")
    assert (strict.fit, strict.limits) == (1, {"some are in another failure domain": 2})
    with pytest.raises(ValueError, match=r"^spec.image has no checksum; .* go without one\.$"):
        fits(image={"url": "http://x/os.raw"})
    with pytest.raises(ValueError, match=r"rack has the operator 'near'.*Lt\.$"):
        fits(hostSelector={"matchExpressions": [{"key": "rack", "operator": "near"}]})


def test_policies() -> None:
    used = {"operationHistory": {"deprovision": {"end": "2026-01-02T00:00:00Z"}}}
    hosts = [
        host("a", labels={DOMAIN: "d1"}, status=used),
        host("b", labels={DOMAIN: "d2"}, status={"operationHistory": {"provision": {"end": "2026-01-01T00:00:00Z"}}}),
        host("c", labels={DOMAIN: "d3"}, status=used),
    ]
    assert chosen(hosts, policy=Policy(Selection.ORDERED)).host == hosts[0]
    assert chosen(hosts, policy=Policy(Selection.LEAST_RECENTLY_USED)).host == hosts[1]
    assert chosen(hosts, policy=Policy(Selection.SPREAD), used_domains={"d1": 2, "d2": 1}).host == hosts[2]
    dice = random.Random(4)
    drawn = {choose(wish(), hosts, Policy(), pick=dice.randrange).host.metadata.name for _ in range(50)}  # type: ignore[union-attr]
    assert drawn == {"a", "b", "c"}


# -- the index of free hosts


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40))
def test_a_bag_holds_what_was_put_in_and_not_taken_out(steps: list[tuple[bool, int]]) -> None:
    bag = Bag()
    held: set[str] = set()
    for put, number in steps:
        (bag.add if put else bag.remove)(str(number))
        (held.add if put else held.discard)(str(number))
    assert sorted(bag.sample(random.Random(1), 100)) == sorted(held)
    assert len(set(bag.sample(random.Random(1), 2))) == min(2, len(held))
    assert len(bag) == len(held)


# -- waiting


def test_a_freed_host_wakes_one_machine_that_it_suits_the_oldest_first() -> None:
    woken: list[str] = []
    waiting = Waiting(woken.append, lambda machine, one: machine != "n/picky")
    for name in ("picky", "old", "young"):
        waiting.add(f"n/{name}")
    waiting.offer(host("a"))
    waiting.offer(host("b"))
    waiting.offer(host("c"))
    assert woken == ["n/old", "n/young"], "each is woken for one host; the third host suits nobody left"
    assert waiting.looked("n/old") == "n/a"
    waiting.offer(host("a"))
    assert woken[2:] == ["n/old"], "what was not taken is offered on"


def test_hosts_come_and_go_as_free() -> None:
    freed: list[str] = []
    hosts = FreeHosts(random.Random(1), lambda one: freed.append(one.metadata.name))
    busy, idle = host("h", "provisioning"), host("h")
    hosts.changed("n/h", None, busy)

    def supplied() -> tuple[str, ...]:
        return hosts.sample(wish(), strict=False, most=10).hosts

    assert (supplied(), freed) == ((), [])
    hosts.changed("n/h", busy, idle)
    assert (supplied(), freed) == (("n/h",), ["h"])
    reserved = host("h", labels={REUSE: "md-a"}, consumer=CLUSTER)
    hosts.changed("n/h", idle, reserved)
    assert (supplied(), hosts.reserved("n", "md-a")) == ((), {"n/h"})
    assert freed == ["h", "h"], "whom it suits has changed, so it is offered again"
    hosts.changed("n/h", reserved, None)
    assert not hosts.reserved("n", "md-a")

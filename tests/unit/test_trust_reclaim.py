"""What a tenant can write, and what it moves: no action on a cluster or a node outside the tenant's reach."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from hostler.apis.assisted import Agent, ClusterDeployment, InfraEnv
from hostler.host.facts import Fact, Known, Unknown
from hostler.kube.client import Client
from hostler.kube.config import from_bytes
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import NODE as NODES
from hostler.kube.records import Node
from hostler.reclaim import model
from hostler.reclaim.artifacts import (
    Artifacts,
    BootPolicy,
    Distrust,
    KernelArgument,
    find_refused_argument,
    find_untrusted,
    is_accepted,
)
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Deploy, Enter, Evict, Hold, Release, RemoveFinalizer, RemoveNode, Withdraw
from hostler.reclaim.facts import (
    AGENTS_FROM,
    CANCEL,
    CONFIRM,
    FINALIZER,
    HASHES,
    MANAGED_BY,
    PINNED,
    REPORT,
    RETRY,
    artifacts_of,
    host_of,
)
from hostler.reclaim.findings import HubObjects, list_findings
from hostler.reclaim.hub.instructions import make_instructions
from hostler.reclaim.identity import Proof, agent_names, allowed_namespaces, known_addresses, prove_machine, spoke_node
from hostler.reclaim.model import (
    ControlPlane,
    Host,
    Pin,
    Policy,
    Spoke,
    SpokeNode,
    SpokeObject,
    State,
    is_held_for,
    pin_node,
)
from hostler.uuids import normalise, same_uuid, swapped
from tests.sizes import examples

NOW = 1_000_000.0
UUIDS = ("0c1a9d3e-0001-4000-8000-000000000001", "0c1a9d3e-0002-4000-8000-000000000002")
ADDRESSES = ("192.0.2.1", "192.0.2.2")
# Two clusters of two owners, each with one node. `shared` is the inventory of the administrator.
CLUSTERS = {"victim": "", "open": "friend, other"}
NAMESPACES = ("tenant", "victim", "friend", "shared")
BOOT = BootPolicy(hub_url="https://hub", hosts=frozenset({"images", "odd:8080"}), arguments=frozenset({"quiet"}))
POLICY = Policy("https://hub", "agent:1", remove_node=True, boot=BOOT)
STAGE = "2026-01-01T00:00:00Z"


REPORTS = [
    f'{{"step": "{model.step_id("u-1", state, STAGE)}", "exit_code": {code}, "reason": "{reason}"}}'
    for state in ("reclaiming", "reclaiming-rebooting")
    for code in (0, 1)
    for reason in ("", "Registered", "NoSpace")
]


def node_of(cluster: str) -> SpokeNode:
    number = list(CLUSTERS).index(cluster)
    return SpokeNode(
        f"node-{number}", f"uid-{number}", UUIDS[number], f"boot-{number}", False, "", False,
        held=True, addresses=frozenset({ADDRESSES[number]}),
    )  # fmt: skip


HOSTILE = ("", "..", "../victim", "a/b", "\u202e", "x" * 300, "\x1b[0m", "0")
CLUSTER_NAMES, NODE_NAMES = st.sampled_from([*CLUSTERS, *HOSTILE]), st.sampled_from(["node-0", "node-1", *HOSTILE])
NOTES = st.one_of(
    st.sampled_from([
        {"cluster_namespace": one, "cluster_name": one, "node_name": node_of(one).name} for one in CLUSTERS
    ]),
    st.fixed_dictionaries({
        "cluster_namespace": CLUSTER_NAMES, "cluster_name": CLUSTER_NAMES, "node_name": NODE_NAMES,
    }),
)  # fmt: skip
STATES = st.sampled_from(["reclaiming", "reclaiming", "discovering-unbound", "installed", *State, "", "x-unbound"])
PINS = [str(pin_node(STAGE, node_of(one))) for one in CLUSTERS]
METADATA = st.fixed_dictionaries({
    "name": st.sampled_from([*UUIDS, UUIDS[0].upper(), "agent-1"]),
    "namespace": st.sampled_from(NAMESPACES),
    "uid": st.just("u-1"),
    "annotations": st.fixed_dictionaries({PINNED: st.sampled_from(PINS)}, optional={
        CONFIRM: st.sampled_from(["victim/victim", "open/open"]),
        MANAGED_BY: st.sampled_from(HOSTILE), CANCEL: st.just("1"), RETRY: st.just("1"),
        REPORT: st.sampled_from(["", *REPORTS]),
    }),
    "finalizers": st.sampled_from([[], [FINALIZER]]),
    "deletionTimestamp": st.sampled_from(["", "", "", STAGE]),
})  # fmt: skip
INVENTORIES = st.fixed_dictionaries({
    "systemVendor": st.sampled_from([{"serialNumber": one} for one in ("", *(f"VMware-{uuid}" for uuid in UUIDS))]),
    "interfaces": st.sampled_from([[{"ipV4Addresses": [f"{one}/24"]}] for one in (*ADDRESSES, "127.0.0.1", "x")]),
})  # fmt: skip
SPECS = st.fixed_dictionaries({"hostname": NODE_NAMES}, optional={
    "clusterDeploymentName": st.fixed_dictionaries({"name": CLUSTER_NAMES, "namespace": CLUSTER_NAMES}),
})  # fmt: skip
ANY_AGENTS = st.fixed_dictionaries({
    "metadata": METADATA,
    "spec": SPECS,
    "status": st.fixed_dictionaries(
        {
            "debugInfo": st.fixed_dictionaries({"state": STATES}),
            "progress": st.just({"stageStartTime": STAGE}), "inventory": INVENTORIES,
        },
        optional={"deprovision_info": NOTES},
    ),
})  # fmt: skip


def begun(namespace: str, name: str, cluster: str, state: str) -> Any:
    """An Agent in the middle of it, as far as its owner can make it look so."""
    note = {"cluster_namespace": cluster, "cluster_name": cluster, "node_name": node_of(cluster).name}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": "u-1", "finalizers": [FINALIZER],
            "annotations": {PINNED: str(pin_node(STAGE, node_of(cluster)))},
        },
        "status": {
            "debugInfo": {"state": state}, "progress": {"stageStartTime": STAGE}, "deprovision_info": note,
            "inventory": {"interfaces": [{"ipV4Addresses": list(node_of(cluster).addresses)}]},
        },
    }  # fmt: skip


AGENTS = st.one_of(
    ANY_AGENTS,
    st.builds(
        begun, st.sampled_from(NAMESPACES), st.sampled_from([*UUIDS, "agent-1"]), st.sampled_from(sorted(CLUSTERS)),
        STATES,
    ),
)  # fmt: skip
URLS = st.sampled_from(
    ["https://images/x", "https://b/x", "http://images/x", "http://evil/x", "http://images@evil/x", *HOSTILE]
)
ARGUMENTS = st.fixed_dictionaries({
    "operation": st.sampled_from(["append", "replace", "delete", *HOSTILE]),
    "value": st.sampled_from(["ip=dhcp", "init=/bin/sh", "quiet", "console=ttyS0 init=/x", "panic=30", *HOSTILE]),
})  # fmt: skip
INFRA_ENVS = st.fixed_dictionaries({
    "metadata": st.fixed_dictionaries({
        "annotations": st.dictionaries(st.sampled_from(sorted(HASHES.values())), st.sampled_from(["a" * 64, *HOSTILE])),
    }),
    "spec": st.fixed_dictionaries({}, optional={
        "proxy": st.sampled_from([{"httpProxy": "http://evil:3128", "noProxy": one} for one in ("", "*", "images")]),
        "kernelArguments": st.lists(ARGUMENTS, max_size=2),
    }),
    "status": st.one_of(
        st.just({"bootArtifacts": dict.fromkeys(("kernel", "initrd", "rootfs"), "https://b/x")}),
        st.fixed_dictionaries({
            "bootArtifacts": st.fixed_dictionaries(dict.fromkeys(("kernel", "initrd", "rootfs"), URLS)),
        }),
    ),
})  # fmt: skip


def seen(host: Host, artifacts: Artifacts | None, answers: bool, held: bool) -> Host:
    """The facts that a look at the world gives, as `SpokeClusters.look` does; a cluster is asked only if allowed."""
    if host.previous is None or host.previous.name not in CLUSTERS or host.previous.namespace != host.previous.name:
        unknown = Unknown("there is none")
        return replace(host, artifacts=Known(artifacts, NOW), spoke=Spoke(Known(False, NOW), *(unknown,) * 3))
    cluster = host.previous.name
    allowed = allowed_namespaces(cluster, CLUSTERS[cluster], {"shared"})
    reach = Known(host.namespace in allowed, NOW)
    found = replace(node_of(cluster), held=held)
    there = host.previous.node == found.name
    node: Fact[SpokeNode | None] = Known(found if there else None, NOW)
    if not answers or not (reach.value or (there and is_held_for(host, found))):
        node = Unknown("it was not looked at")
    spoke = Spoke(
        Known(True, NOW), node, Known(ControlPlane(3, 2), NOW), Known(frozenset[SpokeObject](), NOW), reach=reach
    )  # fmt: skip
    return replace(host, artifacts=Known(artifacts, NOW), spoke=spoke)


@settings(max_examples=examples(400))
@given(AGENTS, INFRA_ENVS, st.booleans(), st.booleans())
def test_no_object_of_a_tenant_moves_a_foreign_node(body: Any, environment: Any, answers: bool, held: bool) -> None:
    agent, infra_env = msgspec.convert(body, Agent), msgspec.convert(environment, InfraEnv)
    host = seen(host_of(agent, started=NOW - 10), artifacts_of(infra_env), answers, held)
    for action in decide(host, POLICY, NOW).actions:
        event(type(action).__name__)
        match action:
            case Deploy(node) | Hold(node) | RemoveNode(node) | Release(node):
                assert host.previous is not None
                owner = host.previous.name
                if isinstance(action, Release) and not (isinstance(host.spoke.reach, Known) and host.spoke.reach.value):
                    assert host.pinned is not None
                    assert host.pinned.uid == node.uid
                    assert host.kept
                    continue
                assert host.namespace in {"victim": ("victim", "shared"), "open": ("open", "friend", "shared")}[owner]
                if not isinstance(action, Release):
                    assert prove_machine(host, node) in (Proof.SYSTEM_UUID, Proof.ADDRESS)
                if isinstance(action, Deploy | Hold):
                    found = artifacts_of(infra_env)
                    assert found is None or is_accepted(found, BOOT)
            case Evict():
                raise AssertionError("nothing is emptied without a policy for it")
            case Enter(transition) if transition is model.REBOOT:
                assert isinstance(host.spoke.reach, Known)
                assert host.spoke.reach.value


@settings(max_examples=examples(300))
@given(INFRA_ENVS)
def test_an_agent_is_told_to_boot_only_what_is_accepted(environment: Any) -> None:
    """The InfraEnv may have changed since the rules were looked at: the hub looks again."""
    agent = msgspec.convert({"metadata": {"uid": "u"}, "status": {"debugInfo": {"state": "reclaiming"}}}, Agent)
    infra_env = msgspec.convert(environment, InfraEnv)
    told = make_instructions(agent, infra_env, BOOT)["instructions"]
    found = artifacts_of(infra_env)
    assert bool(told) == (found is not None and is_accepted(found, BOOT))


# -- who may act where


@pytest.mark.parametrize(
    ("namespace", "allowed"),
    [("victim", True), ("tenant", False), ("friend", True), ("shared", True), ("", False), ("victim ", False)],
)
def test_namespaces_are_allowed_by_name_only(namespace: str, allowed: bool) -> None:
    note = {"metadata": {"annotations": {AGENTS_FROM: "friend,, other ,"}}}
    text = msgspec.convert(note, ClusterDeployment).metadata.annotations[AGENTS_FROM]
    assert (namespace in allowed_namespaces("victim", text, ("shared",))) == allowed


def machine(name: str = "agent-1", serial: str = "", *addresses: str) -> Host:
    body = {
        "metadata": {"name": name},
        "status": {
            "inventory": {
                "systemVendor": {"serialNumber": serial},
                "interfaces": [{"ipV4Addresses": addresses[:1], "ipV6Addresses": addresses[1:]}],
            }
        },
    }
    return host_of(msgspec.convert(body, Agent))


SWAPPED = swapped(UUIDS[0].replace("-", ""))
NAMELESS = replace(node_of("victim"), system_uuid="")
OF_BOARD = str(UUID(hex=hashlib.md5(b"PDYVC0ARH9X123", usedforsecurity=False).hexdigest()))
SHARED = "03000200-0400-0500-0006-000700080009"  # boards of many makers have it


def taken_over(host: Host) -> Host:
    """With another Agent that is named by the system UUID of the node."""
    return replace(host, spoke=replace(host.spoke, namesake=f"victim/{UUIDS[0]}"))


@pytest.mark.parametrize(
    ("host", "node", "proof"),
    [
        (machine(UUIDS[0]), node_of("victim"), Proof.SYSTEM_UUID),
        (machine(SWAPPED), node_of("victim"), Proof.SYSTEM_UUID),
        (machine(UUIDS[0]), replace(NAMELESS, system_uuid=UUIDS[0].upper()), Proof.SYSTEM_UUID),
        (machine("agent-1", f"VMware-{SWAPPED}"), node_of("victim"), Proof.SYSTEM_UUID),
        # Most hosts of bare metal: the name is the MD5 of the motherboard's serial number.
        (machine(OF_BOARD, "CZ1234", "192.0.2.1/24"), node_of("victim"), Proof.ADDRESS),
        (machine(OF_BOARD, "CZ1234"), node_of("victim"), Proof.NONE),
        (machine(OF_BOARD, f"VMware-{SWAPPED}"), node_of("victim"), Proof.SYSTEM_UUID),
        (machine(OF_BOARD, f"VMware-{UUIDS[1]}", "192.0.2.1/24"), node_of("victim"), Proof.CONTRADICTED),
        (machine(UUIDS[0], f"VMware-{UUIDS[1]}"), node_of("victim"), Proof.CONTRADICTED),
        (taken_over(machine(OF_BOARD, "", "192.0.2.1/24")), node_of("victim"), Proof.CONTRADICTED),
        (taken_over(machine(UUIDS[0])), node_of("victim"), Proof.SYSTEM_UUID),
        (machine(SHARED), replace(NAMELESS, system_uuid=SHARED), Proof.NONE),
        (machine("agent-1", "", "192.0.2.1/24"), node_of("victim"), Proof.ADDRESS),
        (machine(UUIDS[1], "", "192.0.2.1/24"), NAMELESS, Proof.ADDRESS),
        (
            machine(UUIDS[1], "", "x", "2001:DB8::0:1/64"),
            replace(NAMELESS, addresses=frozenset({"2001:db8::1"})),
            Proof.ADDRESS,
        ),
        (machine("agent-1", "", "192.0.2.9/24"), node_of("victim"), Proof.NONE),
        (machine("agent-1"), replace(NAMELESS, addresses=frozenset()), Proof.NONE),
        (machine("0" * 32), replace(NAMELESS, system_uuid="0" * 32, addresses=frozenset()), Proof.NONE),
        (
            machine("agent-1", "", "169.254.0.1", "fe80::1"),
            replace(NAMELESS, addresses=known_addresses(["fe80::1"])),
            Proof.NONE,
        ),
    ],
)
def test_what_proves_that_agent_and_node_are_one_machine(host: Host, node: SpokeNode, proof: Proof) -> None:
    assert prove_machine(host, node) is proof


@given(st.uuids())
def test_an_agent_named_by_a_system_uuid_is_found(found: UUID) -> None:
    names = agent_names(found.hex.upper())
    assert str(found) in names or normalise(str(found)) is None
    assert all(
        same_uuid(name, str(found))
        and prove_machine(machine(name), replace(NAMELESS, system_uuid=str(found))) is Proof.SYSTEM_UUID
        for name in names
    )


@given(st.lists(st.text(max_size=20), max_size=4))
def test_no_text_becomes_an_address_that_many_have(texts: list[str]) -> None:
    assert not known_addresses([*texts, "127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1"]) & {"127.0.0.1", "::1"}


# -- what is booted

GOOD = Artifacts("https://a/k", "https://a/i", "https://a/r")
HASHED = frozenset({"kernel", "initrd"})


@pytest.mark.parametrize(
    ("artifacts", "found"),
    [
        (GOOD, None),
        (replace(GOOD, kernel="http://a/k"), ("kernel", Distrust.PLAIN_HTTP)),
        (replace(GOOD, kernel="http://a/k", hashed=HASHED), None),
        (replace(GOOD, kernel="http://a/k", served=frozenset({"kernel"})), None),
        (replace(GOOD, kernel="http://IMAGES/k", initrd="HTTP://images:81/i", rootfs="http://images/r"), None),
        (replace(GOOD, kernel="http://odd:8080/k"), None),
        (replace(GOOD, kernel="http://odd/k"), ("kernel", Distrust.PLAIN_HTTP)),
        (replace(GOOD, rootfs="http://a/r", hashed=HASHED), ("rootfs", Distrust.PLAIN_HTTP)),
        (replace(GOOD, kernel="http://images.evil/k"), ("kernel", Distrust.PLAIN_HTTP)),
        *(
            (replace(GOOD, kernel=url, hashed=HASHED), ("kernel", Distrust.NOT_AN_ADDRESS))
            for url in (
                "http://images@evil/k", "http://evil\\@images/k", "http://images\t.evil/k", "ftp://images/k",
                "file:///etc/shadow", "//images/k", "http://images:0/k", "http://im\u0430ges/k", "http://images./k",
                "https://images/k x", "javascript:1", "http://[::1", "https://images/\u202e",
            )
        ),
        (replace(GOOD, kernel="http://images/k", http_proxy="http://evil:1"), ("kernel", Distrust.PROXY)),
        (replace(GOOD, kernel="http://images/k", http_proxy="http://evil:1", no_proxy="images"), None),
        (replace(GOOD, kernel="http://images/k", http_proxy="http://evil:1", hashed=HASHED), None),
        (replace(GOOD, http_proxy="http://evil:1"), None),
    ],
)  # fmt: skip
def test_which_artifacts_are_fetched(artifacts: Artifacts, found: tuple[str, Distrust] | None) -> None:
    untrusted = find_untrusted(artifacts, BOOT)
    assert (None if untrusted is None else (untrusted.name, untrusted.why)) == found


def test_a_tenants_proxy_does_not_stand_before_a_plain_hub() -> None:
    plain = replace(BOOT, hub_url="http://hub:8090")
    proxied = replace(GOOD, http_proxy="http://evil:1")
    assert find_untrusted(GOOD, plain) is None
    found = find_untrusted(proxied, plain)
    assert found is not None
    assert (found.name, found.why) == ("hub", Distrust.PROXY)
    assert find_untrusted(replace(proxied, no_proxy="hub"), plain) is None


@pytest.mark.parametrize(
    ("operation", "value", "refused"),
    [
        ("append", "console=ttyS0,115200n8", None),
        ("append", "ip=[2001:db8::1]::[2001:db8::2]:64:h:eth0:none", None),
        ("append", "rd.net.timeout.carrier=30", None),
        ("append", "ip=dhcp nameserver=192.0.2.53", None),
        ("append", "fips=1", None),
        ("append", "quiet", None),
        ("replace", "ip=dhcp=off", None),
        ("delete", "vlan=a:b", None),
        ("append", "init=/bin/sh", '"init=/bin/sh"'),
        ("append", "rd.break", '"rd.break"'),
        ("append", "rd.netx=1", '"rd.netx=1"'),
        ("append", "Console=ttyS0", '"Console=ttyS0"'),
        ("append", "console=ttyS0 init=/bin/sh", '"init=/bin/sh"'),
        ("append", "console=ttyS0\tinit=/bin/sh", '"console=ttyS0 init=/bin/sh"'),
        ("append", 'console="a init=/bin/sh"', '"console=\'a"'),
        ("append", "--", '"--"'),
        ("append", "", '""'),
        ("append", "ip=$(reboot)", '"ip=$(reboot)"'),
        ("append", "ignition.config.url=http://evil", '"ignition.config.url=http://evil"'),
        ("replace", "coreos.live.rootfs_url=a=b", '"coreos.live.rootfs_url=a=b"'),
        ("delete", "panic=30", '"panic=30"'),
        ("delete", "ignition.firstboot", '"ignition.firstboot"'),
        ("prepend", "ip=dhcp", '"prepend ip=dhcp"'),
        ("append", "\x1b[31mevil=1", '"[31mevil=1"'),
        ("append", "\uff49\uff4e\uff49\uff54=/x", '"\uff49\uff4e\uff49\uff54=/x"'),
    ],
)
def test_which_kernel_arguments_pass(operation: str, value: str, refused: str | None) -> None:
    assert find_refused_argument([KernelArgument(operation, value)], BOOT.arguments) == refused


# -- state of an earlier version


def under_way(**spoke: Any) -> Host:
    facts: dict[str, Any] = {
        "kubeconfig": Known(True, NOW), "node": Known(node_of("victim"), NOW), "control_plane": Unknown("not asked"),
        "remains": Known(frozenset({SpokeObject("daemonsets", "node-0-reclaim")}), NOW), "reach": Known(True, NOW),
        **spoke,
    }  # fmt: skip
    body = {
        "metadata": {
            "name": UUIDS[0], "namespace": "victim", "uid": "u-1", "finalizers": [FINALIZER],
            "annotations": {PINNED: str(pin_node(STAGE, node_of("victim")))},
        },
        "status": {
            "debugInfo": {"state": "reclaiming"}, "progress": {"stageStartTime": STAGE},
            "deprovision_info": {"cluster_namespace": "victim", "cluster_name": "victim", "node_name": "node-0"},
        },
    }  # fmt: skip
    host = host_of(msgspec.convert(body, Agent), started=NOW - 10)
    return replace(host, artifacts=Known(GOOD, NOW), spoke=Spoke(**facts))


OTHER = replace(node_of("victim"), system_uuid=UUIDS[1])


def done(host: Host) -> Host:
    step = model.step_id(host.uid, host.state, host.stage)
    return replace(host, report=model.Report(step, 0, None, ""))


def test_a_reclaim_of_an_earlier_version_goes_on() -> None:
    (action,) = decide(under_way(), POLICY, NOW).actions
    assert action == Deploy(node_of("victim"))
    (entered,) = decide(done(under_way()), POLICY, NOW).actions
    assert isinstance(entered, Enter)
    assert entered.transition is model.REBOOT
    # With the last control-plane node its API goes: what was proven then still holds.
    (entered,) = decide(done(under_way(node=Unknown("it is gone"))), POLICY, NOW).actions
    assert isinstance(entered, Enter)
    assert entered.transition is model.REBOOT


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spoke": {"reach": Known(False, NOW), "node": Unknown("not asked")}}, "NamespaceNotAllowed"),
        ({"spoke": {"node": Known(OTHER, NOW), "namesake": f"victim/{UUIDS[1]}"}}, "AnotherMachine"),
        ({"spoke": {"node": Known(OTHER, NOW)}}, "MachineNotProven"),
        ({"spoke": {"node": Known(NAMELESS, NOW)}}, "MachineNotProven"),
        ({"artifacts": Known(replace(GOOD, kernel="http://evil/k"), NOW)}, "ArtifactsNotTrusted"),
        (
            {"artifacts": Known(replace(GOOD, arguments=(KernelArgument("append", "init=/x"),)), NOW)},
            "KernelArgumentRefused",
        ),
    ],
)
def test_one_that_would_not_begin_today_ends_before_the_restart(change: dict[str, Any], reason: str) -> None:
    """The image may be on the host already: that is reported, and still it is not restarted."""
    for host in (under_way(**change.get("spoke", {})), done(under_way(**change.get("spoke", {})))):
        host = replace(host, artifacts=change.get("artifacts", host.artifacts))
        (action,) = decide(host, POLICY, NOW).actions
        assert isinstance(action, Enter)
        assert (action.transition, action.reason) == (model.FAIL, reason)
        # What was put there is taken back, and nothing else is done there.
        after = decide(replace(host, state=State.PENDING), POLICY, NOW)
        assert after.actions == (Withdraw(),)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_cordon_ends_after_the_permission_is_withdrawn(deleted: bool) -> None:
    lost = {"reach": Known(False, NOW), "remains": Known(frozenset[SpokeObject](), NOW)}
    host = replace(under_way(**lost), state=State.PENDING, deleted=deleted)
    assert decide(host, POLICY, NOW).actions == (Release(node_of("victim")),)
    released = replace(host, spoke=replace(host.spoke, node=Unknown("not looked at")))
    assert decide(released, POLICY, NOW).actions == (RemoveFinalizer(),)


@pytest.mark.parametrize("pinned", [pin_node(STAGE, replace(node_of("victim"), uid="another")), None])
def test_a_node_cordoned_for_another_agent_stays_so(pinned: Pin | None) -> None:
    lost = {"reach": Known(False, NOW), "remains": Known(frozenset[SpokeObject](), NOW)}
    host = replace(under_way(**lost), state=State.PENDING, pinned=pinned)
    assert decide(host, POLICY, NOW).actions == (RemoveFinalizer(),)


def test_while_the_reach_is_not_known_nothing_is_begun() -> None:
    host = done(under_way(reach=Unknown("the hub does not answer")))
    assert decide(host, POLICY, NOW).actions == ()


# -- what doctor proposes


def test_doctor_names_the_setting_that_accepts_what_is_refused() -> None:
    env = {
        "metadata": {"name": "env", "namespace": "hosts"},
        "spec": {"kernelArguments": [{"operation": "append", "value": "quiet"}]},
        "status": {"bootArtifacts": dict.fromkeys(("kernel", "initrd", "rootfs"), "http://images.example:8080/x")},
    }
    bound = {"clusterDeploymentName": {"name": "old", "namespace": "spoke"}}
    objects = HubObjects(
        tuple(msgspec.convert({"metadata": {"name": one, "namespace": "hosts"}, "spec": bound}, Agent) for one in "ab"),
        (msgspec.convert(env, InfraEnv),),
        (msgspec.convert({"metadata": {"name": "old", "namespace": "spoke"}}, ClusterDeployment),),
    )

    def fixes(**told: str) -> str:
        on = Known(True, NOW)
        return "; ".join(one.fix for one in list_findings(Known(objects, NOW), told, on=on))

    said = fixes(HUB_URL="http://hub")
    assert "HOSTLER_HUB_PLAIN_HTTP" in said
    assert "HOSTLER_RECLAIM_ARTIFACT_HOSTS=images.example." in said
    assert "HOSTLER_RECLAIM_KERNEL_ARGUMENTS" in said
    assert "HOSTLER_RECLAIM_INVENTORIES=hosts." in said
    accepted = {
        "HOSTLER_RECLAIM_ARTIFACT_HOSTS": "images.example", "HOSTLER_RECLAIM_KERNEL_ARGUMENTS": "quiet",
        "HOSTLER_RECLAIM_INVENTORIES": "other, hosts",
    }  # fmt: skip
    assert fixes(**accepted) == ""
    assert list(list_findings(Known(objects, NOW), {}, on=Known(False, NOW))) == []
    assert list(list_findings(Known(objects, NOW), {}, on=Unknown("no operator"))) == []
    (unread,) = list_findings(Unknown("forbidden"), {}, on=Known(True, NOW))
    assert "forbidden" in unread.why


# -- no word of others in our sentences

FOREIGN = "the-secret-of-an-internal-service"


async def failure_of(port: int) -> str:
    """How asking for a node at this port fails, in our own text."""
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}], "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }  # fmt: skip
    async with Client(from_bytes(msgspec.json.encode(kubeconfig)), timeout=20) as client:
        try:
            await client.get(NODES, "n", type=Node)
        except FAILURES as error:
            return describe_failure(error)
    raise AssertionError("that was no answer of an API server")


@given(st.text(min_size=1, max_size=60), st.text(max_size=60))
@example('x"; \x1b[31m', "y")
def test_a_spokes_node_gives_no_free_text(text: str, more: str) -> None:
    body = {
        "metadata": {"name": text, "uid": text, "annotations": {"machine.openshift.io/machine": more}},
        "spec": {"providerID": text},
        "status": {
            "nodeInfo": {"systemUUID": text, "bootID": text},
            "addresses": [{"type": "InternalIP", "address": text}],
        },
    }
    found = spoke_node(msgspec.convert(body, Node))
    for shown in (found.name, found.uid, found.boot_id, found.system_uuid, found.machine, found.provider_id):
        assert shown.isprintable()
        assert '"' not in shown.strip('"')
        assert len(shown) <= 260


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 500 " + FOREIGN.encode() + b"\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 403 x\r\nContent-Length: 52\r\n\r\n{"message": "' + FOREIGN.encode() + b'"}     ',
        b"HTTP/1.1 404 x\r\nContent-Length: 36\r\n\r\n   " + FOREIGN.encode(),
        b"HTTP/1.1 200 x\r\nContent-Length: 33\r\n\r\n" + FOREIGN.encode(),
        b"HTTP/1.1 302 x\r\nLocation: http://" + FOREIGN.encode() + b"/\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-" + FOREIGN.encode() + b"\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: 400\r\n\r\n" + FOREIGN.encode(),
        b"-ERR " + FOREIGN.encode() + b"\r\n\r\n",
        b"",
    ],
)
def test_what_a_server_answers_is_described_in_our_words(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def ask() -> str:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            return await failure_of(server.sockets[0].getsockname()[1])

    described = asyncio.run(ask())
    assert FOREIGN not in described
    assert described.isprintable()


def test_why_a_server_does_not_answer_is_named() -> None:
    async def ask() -> str:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await failure_of(port)

    assert asyncio.run(ask()) == "it cannot be reached (Connection refused)"

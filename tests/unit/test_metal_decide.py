"""A machine's life as pure decisions: what it waits for, what its host becomes, how it lets go; said again, nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Cluster, Metal3Machine, Metal3MachineTemplate, Owner, SecretRef
from hostler.kube.kinds import SECRET
from hostler.metal import names
from hostler.metal.claiming.reservations import why_abandoned
from hostler.metal.clusters import cluster_change, decide_cluster, endpoint_change, pause_change
from hostler.metal.decide import decide_associated, why_no_host, why_not_yet
from hostler.metal.model import Facts, NodeSeen, Rendered, Said
from hostler.metal.moving import unpause_change
from hostler.metal.provisioning import host_change, wrong_spec
from hostler.metal.release import decide_release
from hostler.metal.status import status_change

IMAGE = {"url": "http://x/os.raw", "checksum": "abc", "checksumType": "sha256"}
API = "infrastructure.cluster.x-k8s.io/v1beta2"
CONSUMER = {"apiVersion": API, "kind": "Metal3Machine", "name": "m", "namespace": "n"}
OWNED = {"apiVersion": API, "kind": "Metal3Machine", "name": "m", "uid": "u", "controller": True}
LABEL = "cluster.x-k8s.io/cluster-name"


def machine(annotations: Any = None, status: Any = None, **spec: Any) -> Metal3Machine:
    meta = {
        "name": "m", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
        "annotations": annotations or {}, "finalizers": [names.MACHINE_FINALIZER, "other"],
    }  # fmt: skip
    body = {"metadata": meta, "spec": {"image": IMAGE, **spec}, "status": status or {}}
    return msgspec.convert(body, Metal3Machine)


def owner(**spec: Any) -> Machine:
    whole = {"clusterName": "c", "bootstrap": {"dataSecretName": "boot"}, **spec}
    return msgspec.convert({"metadata": {"name": "m", "namespace": "n"}, "spec": whole}, Machine)


def cluster(ready: bool = True, deleted: str = "", **spec: Any) -> Cluster:
    meta = {"name": "c", "namespace": "n", "deletionTimestamp": deleted}
    status = {"initialization": {"infrastructureProvisioned": ready}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Cluster)


def host(state: str = "available", mine: bool = False, **more: Any) -> BareMetalHost:
    spec = {"online": False, "automatedCleaningMode": "metadata", "bmc": {"credentialsName": "bmc"}}
    meta: dict[str, Any] = {"name": "h", "namespace": "n", "uid": "hu", "resourceVersion": "9"}
    if mine:
        spec |= {"consumerRef": CONSUMER, "online": True}
        meta |= {"labels": {LABEL: "c", names.MOVE_HIERARCHY: ""}, "annotations": {names.BLOCK_MOVE: ""}}
    spec |= more.pop("spec", {})
    meta |= more.pop("meta", {})
    status = {"operationalStatus": "OK", "provisioning": {"state": state}, **more.pop("status", {})}
    assert not more
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, BareMetalHost)


def facts(**more: Any) -> Facts:
    return Facts(**{"machine": machine(), "owner": owner(), "cluster": cluster(), **more})


def reusing() -> dict[str, Any]:
    template = msgspec.convert({"metadata": {"name": "t"}, "spec": {"nodeReuse": True}}, Metal3MachineTemplate)
    return {"template": template, "reuse": "md-a"}


# -- waiting


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (facts(owner=None), "WaitingForMetal3MachineOwnerRef"),
        (facts(cluster=None), "WaitingForCluster"),
        (facts(cluster=cluster(ready=False)), "WaitingForClusterInfrastructureReady"),
        (facts(owner=owner(bootstrap={"configRef": {"name": "x"}})), "WaitingForBootstrapReady"),
        (facts(machine=machine(image={})), "InvalidSpec"),
    ],
)
def test_what_a_machine_waits_for(known: Facts, reason: str) -> None:
    said = why_not_yet(known)
    assert said is not None
    assert said.reason == reason
    assert said.message.endswith(".")


def test_a_machine_may_bring_its_own_user_data() -> None:
    known = facts(machine=machine(userData={"name": "mine"}), owner=owner(bootstrap={}))
    assert why_not_yet(known) is None
    assert host_change(known, host())["spec"]["userData"] == {"name": "mine", "namespace": "n"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"image": {"url": "http://x"}}, "has no checksum"),
        ({"image": {"url": "not a url", "checksum": "a"}}, "is no URL"),
        ({"image": {"url": "images/os.qcow2", "checksum": "a"}}, "is no URL"),
        ({"image": {"url": "http://x", "diskFormat": "live-iso"}}, ""),
        ({"image": {"url": "oci://x"}}, ""),
        ({"image": {}, "customDeploy": {"method": "install"}}, ""),
        ({"image": {"url": "http://x"}, "customDeploy": {"method": "install"}}, ""),
        ({"image": {"url": "http://x"}, "customDeploy": {"method": ""}}, "has no checksum"),
        ({"image": {}, "customDeploy": {"method": ""}}, "nothing to provision"),
        ({"image": {}}, "nothing to provision"),
        ({"userData": {"name": "s", "namespace": "other"}}, "it must be in n"),
        ({"networkData": {"name": "s", "namespace": "other"}}, "it must be in n"),
        ({"dataTemplate": {"name": "t", "namespace": "other"}}, "it must be in n"),
    ],
)
def test_a_wrong_spec_is_a_sentence(spec: dict[str, Any], says: str) -> None:
    why = wrong_spec(machine(**spec))
    assert says in why if says else why == ""


# -- the host


def test_the_claim_is_one_change() -> None:
    assert host_change(facts(), host()) == {
        "metadata": {
            "labels": {LABEL: "c", names.MOVE_HIERARCHY: ""},
            "annotations": {names.BLOCK_MOVE: ""},
        },
        "spec": {
            "consumerRef": CONSUMER,
            "image": {"url": "http://x/os.raw", "checksum": "abc", "checksumType": "sha256"},
            "userData": {"name": "boot", "namespace": "n"},
            "online": True,
        },
    }


def test_a_host_that_is_as_it_should_be_is_left_alone() -> None:
    assert host_change(facts(), host(mine=True, spec={"image": IMAGE})) == {}


def test_a_cluster_that_is_not_known_is_no_reason_to_change_the_label() -> None:
    """Its Machine is gone, or cannot be read, and the machine has no label of its own."""
    assert host_change(facts(owner=None, cluster=None), host("provisioned", mine=True, spec={"image": IMAGE})) == {}


def test_an_image_is_never_changed() -> None:
    changed = facts(machine=machine(image={**IMAGE, "url": "http://x/new.raw"}))
    assert host_change(changed, host(mine=True, spec={"image": IMAGE})) == {}


def test_the_cleaning_mode_is_copied_when_it_is_set_and_differs() -> None:
    mine = host(mine=True, spec={"image": IMAGE})
    asked = facts(machine=machine(automatedCleaningMode="disabled"))
    assert host_change(asked, mine) == {"spec": {"automatedCleaningMode": "disabled"}}
    assert host_change(facts(machine=machine(automatedCleaningMode="metadata")), mine) == {}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_no_host_has_its_machine_as_an_owner_and_other_owners_stay(version: str) -> None:
    """Kubernetes would delete the host after the machine, whoever deletes that."""
    theirs = {"apiVersion": "example.org/v1", "kind": "Rack", "name": "r", "uid": "ru", "controller": True}
    old = {**OWNED, "apiVersion": f"infrastructure.cluster.x-k8s.io/{version}"}
    before = host("provisioned", mine=True, spec={"image": IMAGE})
    for owners, left in (([old], None), ([theirs, old], [theirs])):
        owned = host("provisioned", mine=True, spec={"image": IMAGE}, meta={"ownerReferences": owners})
        (write,) = decide_associated(facts(host=owned, node=NodeSeen(why="no node yet."))).writes
        assert (write.body, write.version) == ({"metadata": {"ownerReferences": left}}, "9")
    other = {**OWNED, "name": "other"}
    assert host_change(facts(), msgspec.structs.replace(
        before, metadata=msgspec.structs.replace(before.metadata, owner_references=(msgspec.convert(other, Owner),))
    )) == {}  # fmt: skip


def test_a_reserved_host_loses_its_label_with_the_claim() -> None:
    change = host_change(facts(), host(meta={"labels": {names.NODE_REUSE: "md-a"}}))
    assert change["metadata"]["labels"] == {LABEL: "c", names.NODE_REUSE: None, names.MOVE_HIERARCHY: ""}


def test_with_a_data_template_the_host_is_claimed_first_and_provisioned_later() -> None:
    waiting = facts(rendered=Rendered(False, "it waits"))
    assert host_change(waiting, host())["spec"] == {"consumerRef": CONSUMER}
    ready = Rendered(
        True, name="d", meta_data=SecretRef(name="m-metadata"), network_data=SecretRef(name="m-networkdata")
    )
    change = host_change(facts(rendered=ready), host())["spec"]
    assert change["metaData"] == {"name": "m-metadata", "namespace": "n"}
    assert change["networkData"] == {"name": "m-networkdata", "namespace": "n"}


# -- life


def test_a_spec_that_became_wrong_after_the_claim_is_not_installed() -> None:
    """A secret of another namespace would be handed out by Baremetal Operator, which may read them all."""
    foreign = machine(metaData={"name": "s", "namespace": "other"})
    decision = decide_associated(facts(machine=foreign, host=host(mine=True)))
    assert decision.writes == ()
    (ready,) = [one for one in decision.said if one.type == names.READY]
    assert not ready.true
    assert "spec.metaData names a secret in namespace other; it must be in n." in ready.message
    done = decide_associated(facts(machine=foreign, host=host("provisioned", mine=True, spec={"image": IMAGE})))
    assert "metaData" not in done.why, "what is installed is not judged again"


def test_ready_only_with_its_node() -> None:
    mine = host("provisioned", mine=True, spec={"image": IMAGE})
    provider = "metal3://n/h/m"
    waiting = decide_associated(facts(host=mine, node=NodeSeen(why="no node yet.")))
    assert not waiting.writes
    assert waiting.wake
    assert "no node yet." in waiting.why
    found = decide_associated(facts(host=mine, node=NodeSeen("node1", provider)))
    assert [write.body for write in found.writes] == [{"spec": {"providerID": provider}}]
    assert found.status["initialization"] == {"provisioned": True}
    assert {one.type: one.true for one in found.said}[names.READY]


def test_saying_the_same_again_changes_nothing() -> None:
    hardware = {"hostname": "h", "nics": [{"name": "eth0", "mac": "m", "ip": "10.0.0.1"}]}
    mine = host("provisioned", mine=True, spec={"image": IMAGE}, status={"hardware": hardware})
    known = facts(host=mine, node=NodeSeen("node1", "metal3://n/h/m"), rendered=Rendered(True, name="d"))
    decision = decide_associated(known)
    change = status_change(known.machine, decision.said, decision.status, 1000.0)
    said = msgspec.json.decode(msgspec.json.encode(change["status"]))
    after = machine(status=said, providerID="metal3://n/h/m")
    again = decide_associated(replace(known, machine=after))
    assert again.writes == ()
    assert status_change(after, again.said, again.status, 2000.0) == {}


# -- letting go


def test_a_machine_without_a_host_just_goes_and_keeps_others_finalizers() -> None:
    (write,) = decide_release(facts()).writes
    assert write.body == {"metadata": {"finalizers": ["other"]}}
    assert write.version == "7"


def test_a_host_of_somebody_else_is_never_touched() -> None:
    theirs = host("provisioned", spec={"consumerRef": {**CONSUMER, "name": "other"}, "image": IMAGE})
    assert [write.kind.kind for write in decide_release(facts(host=theirs)).writes] == ["Metal3Machine"]


def test_no_host_is_deleted_after_its_machine() -> None:
    """Kubernetes deletes what has no owner left; another's reference stays."""
    other = {**OWNED, "name": "other", "uid": "ou"}
    lost = host("provisioned", spec={"consumerRef": None, "image": IMAGE}, meta={"ownerReferences": [OWNED, other]})
    stray = host("provisioned", spec={"image": IMAGE}, meta={"name": "stray", "ownerReferences": [OWNED]})
    first, second, last = decide_release(facts(host=lost, owned=(lost, stray))).writes
    assert (first.name, first.version) == ("h", "9")
    assert [one["name"] for one in first.body["metadata"]["ownerReferences"]] == ["other"]
    assert (second.name, second.body) == ("stray", {"metadata": {"ownerReferences": None}})
    assert last.kind == metal3.METAL3_MACHINE
    empty = host(mine=True, spec={"online": False})
    writes = decide_release(facts(host=empty, owned=(empty, stray))).writes
    assert [(write.kind.kind, write.name) for write in writes[1:]] == [
        ("BareMetalHost", "h"), ("BareMetalHost", "stray"), ("Metal3Machine", "m"),
    ]  # fmt: skip


def test_a_host_is_emptied_first() -> None:
    decision = decide_release(
        facts(host=host("provisioned", mine=True, spec={"image": IMAGE, "userData": {"name": "boot"}}))
    )
    (write,) = decision.writes
    assert write.body["spec"] == {"image": None, "userData": None, "online": False}
    assert "metadata" not in write.body, "it stays where it is until it is empty"
    old = host("provisioned", mine=True, spec={"image": IMAGE}, meta={"ownerReferences": [OWNED], "annotations": {}})
    (write,) = decide_release(facts(host=old)).writes
    # Should the machine be removed by force, the host stays; and it is not moved before it is empty.
    assert write.body["metadata"] == {"ownerReferences": None, "annotations": {names.BLOCK_MOVE: ""}}
    assert write.version == "9"


@pytest.mark.parametrize(
    ("field", "name", "told", "cleared"),
    [
        ("userData", "boot", False, True),  # its Machine names it
        ("userData", "x", True, True),
        ("userData", "x", False, False),
        ("metaData", "m-metadata", False, True),  # rendered for it; its status was lost with a move
        ("metaData", "x", False, False),
        ("networkData", "x", True, True),
        ("networkData", "x", False, False),
        ("networkData", "mine", False, True),  # its own spec names it
    ],
)
def test_data_that_the_owner_of_a_host_had_set_stays(field: str, name: str, told: bool, cleared: bool) -> None:
    known = machine(status={field: {"name": "whatever"}} if told else {}, networkData={"name": "mine"})
    mine = host("provisioned", mine=True, spec={"image": IMAGE, field: {"name": name}})
    (write,) = decide_release(facts(machine=known, host=mine)).writes
    assert (field in write.body["spec"]) == cleared
    assert "image" in write.body["spec"]


@pytest.mark.parametrize(
    ("spec", "fast", "online"),
    [
        ({"disablePowerOff": True}, False, None),
        ({"automatedCleaningMode": "metadata"}, True, None),
        ({"automatedCleaningMode": "disabled"}, True, False),
        ({"automatedCleaningMode": "metadata"}, False, False),
    ],
)
def test_power_while_it_is_emptied(spec: dict[str, Any], fast: bool, online: bool | None) -> None:
    mine = host("provisioned", mine=True, spec={"image": IMAGE, **spec})
    (write,) = decide_release(facts(host=mine), fast_track=fast).writes
    assert write.body["spec"].get("online") is online


STATES = (
    *("", "unmanaged", "registering", "inspecting", "preparing", "ready", "available", "provisioning", "provisioned"),
    *("externally provisioned", "deprovisioning", "powering off before delete", "deleting", "news to us"),
)


@pytest.mark.parametrize("state", STATES)
def test_deletion_from_every_host_state(state: str) -> None:
    """Emptied it waits, or is handed back; what is not known waits."""
    empty = host(state, mine=True, spec={"online": False})
    decision = decide_release(facts(host=empty))
    free = state in ("", "unmanaged", "registering", "inspecting", "ready", "available", "externally provisioned")
    if not free:
        assert decision.writes == ()
        assert "being emptied" in decision.why
        return
    label, back, finalizer = decision.writes
    assert label.kind.kind == "Secret"
    let_go = {"labels": {LABEL: None}, "annotations": {names.BLOCK_MOVE: None}}
    assert back.body == {"metadata": let_go, "spec": {"consumerRef": None}}
    assert finalizer.kind.kind == "Metal3Machine"


def test_a_host_whose_status_is_not_restored_yet_is_not_taken_for_an_empty_one() -> None:
    """It was moved here, with what is installed on it: its state is not known, which is not none."""
    kept = {"labels": {LABEL: "c"}, "annotations": {names.STATUS_ANNOTATION: "{}"}}
    moved = host("", mine=True, spec={"image": IMAGE}, meta=kept)
    decision = decide_release(facts(host=moved))
    assert [write.kind for write in decision.writes] == [metal3.BARE_METAL_HOST]
    assert "consumerRef" not in decision.writes[0].body["spec"]
    assert "its status" in decision.why
    known = host("available", mine=True, spec={"image": IMAGE}, meta=kept)
    assert len(decide_release(facts(host=known)).writes) == 3, "what a pause has left there says nothing"


def test_a_machine_that_was_a_node_is_given_no_other_host_though_its_status_was_not_moved_with_it() -> None:
    named = {names.HOST_ANNOTATION: "n/h"}
    was = machine(named, providerID="metal3://n/h/m")
    assert (said := why_no_host(facts(machine=was))) is not None
    assert said.reason == "HostLost"
    assert why_no_host(facts(machine=machine(named))) is None, "one that was none yet gets another"


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ("metal3://n/h/m", "Host n/h does not have it"),
        ("metal3://0b1c", "The host of provider id metal3://0b1c does not have it"),
        ("other://n/h/m", "The host of provider id other://n/h/m does not have it"),
    ],
)
def test_a_machine_that_was_a_node_gets_no_second_host_though_it_names_none(provider: str, says: str) -> None:
    """The annotation may be taken off by hand or by a restore; the provider id says that it had a host."""
    said = why_no_host(facts(machine=machine(providerID=provider)))
    assert said is not None
    assert said.reason == "HostLost"
    assert says in said.message


def test_a_host_on_which_nothing_is_yet_is_emptied_and_handed_back_in_one_patch() -> None:
    owned = {"ownerReferences": [OWNED]}
    claimed = host("available", mine=True, spec={"image": IMAGE, "userData": {"name": "boot"}}, meta=owned)
    _, back, finalizer = decide_release(facts(host=claimed)).writes
    assert back.body["spec"] == {"image": None, "userData": None, "online": False, "consumerRef": None}
    assert back.body["metadata"]["ownerReferences"] is None
    assert back.version == "9", "and only if Baremetal Operator has not begun in this moment"
    assert finalizer.body == {"metadata": {"finalizers": ["other"]}}


def test_a_machine_that_somebody_gave_two_hosts_goes_after_both() -> None:
    empty = host(mine=True, spec={"online": False})
    first = decide_release(facts(host=empty, several=True))
    assert [write.kind for write in first.writes] == [SECRET, metal3.BARE_METAL_HOST], "not yet its finalizer"
    assert metal3.METAL3_MACHINE in [write.kind for write in decide_release(facts(host=empty)).writes]


def test_a_secret_that_is_clear_already_is_not_written_again() -> None:
    known = facts(host=host("available", mine=True), secret_cluster="")
    assert [write.kind.kind for write in decide_release(known).writes] == ["BareMetalHost", "Metal3Machine"]


def test_the_words_do_not_change_while_a_host_is_emptied() -> None:
    words = [decide_release(facts(host=host(state, mine=True))).why for state in ("provisioned", "deprovisioning")]
    assert words[0] == words[1]
    paused = host("provisioned", mine=True, meta={"annotations": {names.PAUSED: "me"}, "labels": {LABEL: "c"}})
    assert "paused by me" in decide_release(facts(host=paused)).why


def test_powered_on_and_not_ours_to_deprovision() -> None:
    on = host("externally provisioned", mine=True, spec={"online": False}, status={"poweredOn": True})
    assert decide_release(facts(host=on)).writes == ()
    on = host(
        "externally provisioned",
        mine=True,
        spec={"online": False},
        status={"poweredOn": True},
        meta={"annotations": {}},
    )
    (write,) = decide_release(facts(host=on)).writes
    assert write.body == {"metadata": {"annotations": {names.BLOCK_MOVE: ""}}}


def test_a_host_to_be_used_again_is_promised_at_once_and_kept_by_the_cluster() -> None:
    busy = host("provisioned", mine=True, spec={"image": IMAGE})
    (write,) = decide_release(facts(host=busy, **reusing())).writes
    assert write.body["metadata"] == {"labels": {names.NODE_REUSE: "md-a"}}
    empty = host(mine=True, spec={"online": False}, meta={"labels": {LABEL: "c", names.NODE_REUSE: "md-a"}})
    back = decide_release(facts(host=empty, **reusing())).writes[1]
    assert back.body["spec"]["consumerRef"]["kind"] == "Cluster"
    assert back.body["metadata"]["labels"] == {LABEL: None, names.NODE_REUSE: "md-a"}
    assert back.body["metadata"]["annotations"] == {names.BLOCK_MOVE: None}


NO_MORE = msgspec.convert({"metadata": {"name": "t"}, "spec": {"nodeReuse": False}}, Metal3MachineTemplate)


@pytest.mark.parametrize(
    "other",
    [{"cluster": cluster(deleted="now")}, {"cluster": None}, {"template": NO_MORE}, {"template": None}],
    ids=["the cluster goes", "it is gone", "the template no longer says so", "the template is gone"],
)
def test_what_was_promised_is_not_kept_where_that_has_changed_meanwhile(other: dict[str, Any]) -> None:
    empty = host(mine=True, spec={"online": False}, meta={"labels": {LABEL: "c", names.NODE_REUSE: "md-a"}})
    back = decide_release(facts(host=empty, **{**reusing(), **other})).writes[1]
    assert back.body["spec"] == {"consumerRef": None}
    assert back.body["metadata"]["labels"] == {LABEL: None, names.NODE_REUSE: None}


# -- pause and reservations


def test_only_our_own_pause_is_taken_back() -> None:
    ours = host(mine=True, meta={"annotations": {names.PAUSED: names.OUR_PAUSE, names.STATUS_ANNOTATION: "{}"}})
    assert unpause_change(ours) == {"metadata": {"annotations": {names.PAUSED: None, names.BLOCK_MOVE: ""}}}
    assert unpause_change(host(mine=True, meta={"annotations": {names.PAUSED: "me"}})) == {}
    assert unpause_change(host(mine=True)) == {}
    assert facts(cluster=cluster(paused=True)).paused
    assert facts(machine=machine(annotations={capi.PAUSED: ""})).paused
    assert not facts().paused


def kept(label: str, consumer: str = "Cluster", **more: str) -> BareMetalHost:
    reference = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": consumer, "name": "c", "namespace": "n", **more}
    return host(meta={"labels": {names.NODE_REUSE: label}}, spec={"consumerRef": reference})


def test_a_host_kept_for_nobody_is_freed() -> None:
    clusters = {"c": cluster(controlPlaneRef={"name": "kcp"})}
    assert why_abandoned(kept("md-a"), {"a"}, clusters) == ""
    assert why_abandoned(kept("cp-kcp"), set(), clusters) == ""
    assert why_abandoned(kept("md-a"), set(), clusters) == "MachineDeployment a is gone"
    assert why_abandoned(kept("cp-other"), set(), clusters) == "control plane other is gone"
    assert why_abandoned(kept("md-a"), {"a"}, {}) == "Cluster c is gone"
    assert why_abandoned(kept("md-a", "Metal3Machine"), set(), {}) == "", "still on its way out of a machine"
    assert why_abandoned(host(), set(), {}) == ""


def test_the_label_of_a_kept_host_is_one_that_the_api_server_takes() -> None:
    """Else the host could not be promised, and its machine would never go."""
    long, other = "a" * 61, "a" * 62
    label = names.reuse_label("md", long)
    assert len(label) <= 63
    assert label != names.reuse_label("md", other)
    assert names.reuse_label("md", "a" * 60) == "md-" + "a" * 60, "as the Go provider has it wherever that is possible"
    clusters = {"c": cluster(controlPlaneRef={"name": long})}
    assert why_abandoned(kept(label), {long}, clusters) == ""
    assert why_abandoned(kept(names.reuse_label("cp", long)), set(), clusters) == ""
    assert why_abandoned(kept(label), {other}, clusters).endswith(" is gone")


def test_a_cluster_of_somebody_else_keeps_its_host_and_so_does_one_that_is_paused() -> None:
    assert why_abandoned(kept("md-a", apiVersion="example.org/v1"), set(), {}) == ""
    assert why_abandoned(kept("md-a", namespace="other"), set(), {}) == ""
    # It may be on its way to another management cluster: its deployments are gone from here before it is.
    assert why_abandoned(kept("md-a"), set(), {"c": cluster(paused=True)}) == ""


def test_an_endpoint_without_a_port_gets_the_default_one() -> None:
    def change(**endpoint: Any) -> Any:
        return endpoint_change(msgspec.convert({"spec": {"controlPlaneEndpoint": endpoint}}, Metal3Cluster))

    assert change(host="10.0.0.1") == {"spec": {"controlPlaneEndpoint": {"port": 6443}}}
    assert change(host="10.0.0.1", port=443) == {}
    assert change() == {}, "without a host there is nothing to add to"


def test_the_failure_domains_of_a_cluster_follow_its_spec() -> None:
    def change(spec: Any, status: Any) -> Any:
        cluster = msgspec.convert(
            {"spec": {"failureDomains": spec}, "status": {"failureDomains": status}}, Metal3Cluster
        )
        return cluster_change(cluster, Said(names.READY, True, "Ready"), 1.0)["status"].get(
            "failureDomains", "as it was"
        )

    one, two = {"name": "one", "controlPlane": True}, {"name": "two"}
    assert change([one, two], []) == [one, two]
    assert change([one, two], [one, two]) == "as it was"
    assert change([two], [one, two]) == [two]
    assert change([], [one]) is None
    assert change([], []) == "as it was"


def test_a_paused_cluster_says_so_once_and_what_it_said_before_stays() -> None:
    def metal(conditions: Any) -> Metal3Cluster:
        status = {"conditions": conditions}
        return msgspec.convert({"metadata": {"name": "c", "namespace": "n"}, "status": status}, Metal3Cluster)

    ready = cluster_change(metal([]), Said(names.READY, True, "Ready"), 1.0)["status"]["conditions"]
    paused = pause_change(metal(ready), 2.0)["status"]["conditions"]
    assert {one["type"]: one["status"] for one in paused} == {
        "Ready": "True", "InfrastructureReady": "True", "Paused": "True",
    }  # fmt: skip
    assert pause_change(metal(paused), 3.0) == {}, "a second look"
    again = cluster_change(metal(paused), Said(names.READY, True, "Ready"), 4.0)["status"]["conditions"]
    assert [one["status"] for one in again if one["type"] == "Paused"] == ["False"]


def test_a_cluster_gets_finalizer_port_and_status_from_one_decision() -> None:
    endpoint = {"spec": {"controlPlaneEndpoint": {"host": "h"}}}
    found = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "n", "resourceVersion": "7"}, **endpoint}, Metal3Cluster
    )
    finalized, port, status = decide_cluster(found, cluster(), (), 0.0)
    assert (finalized.version, finalized.body["metadata"]["finalizers"]) == ("7", [names.CLUSTER_FINALIZER])
    assert (port.version, port.body) == ("", {"spec": {"controlPlaneEndpoint": {"port": 6443}}})
    assert status.subresource == "status"
    assert status.body["status"]["initialization"] == {"provisioned": True}, "with the port that it gets"


def test_a_cluster_goes_after_its_machines() -> None:
    meta = {
        "name": "c",
        "deletionTimestamp": "now",
        "finalizers": ["x", names.CLUSTER_FINALIZER],
        "resourceVersion": "7",
    }
    found = msgspec.convert({"metadata": meta}, Metal3Cluster)
    (waits,) = decide_cluster(found, cluster(), ("m",), 0.0)
    assert waits.why == "It waits for m."
    (gone,) = decide_cluster(found, cluster(), (), 0.0)
    assert (gone.body, gone.version) == ({"metadata": {"finalizers": ["x"]}}, "7")

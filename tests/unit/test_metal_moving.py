"""A host is copied by `clusterctl move` only with its pause and its status; until then it is kept from moving."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import msgspec
import pytest

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.metal import names
from hostler.metal.claiming.reservations import is_blocked_for_nothing
from hostler.metal.moving import block_change, is_movable, pause_change, unpause_change

STATUS = {"provisioning": {"state": "provisioned"}, "poweredOn": True, "hardware": {"hostname": "h"}}
KEPT = json.dumps({"provisioning": {"state": "provisioned"}, "poweredOn": True}, separators=(",", ":"))
OWNED = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m", "uid": "u"}
MACHINE = msgspec.convert({"metadata": {"name": "m", "namespace": "n", "uid": "u"}}, Metal3Machine).metadata
BLOCKED = {names.BLOCK_MOVE: ""}
OURS, THEIRS = {names.PAUSED: names.OUR_PAUSE}, {names.PAUSED: "me"}


def whole(annotations: dict[str, str], status: dict[str, Any] | None = STATUS, **meta: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"name": "h", "namespace": "n", "annotations": annotations, **meta}}
    return {**found, "status": status} if status is not None else found


def record(body: dict[str, Any]) -> BareMetalHost:
    return msgspec.convert({key: value for key, value in body.items() if key != "status"}, BareMetalHost)


def merged(body: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    annotations = {**body["metadata"]["annotations"], **change.get("metadata", {}).get("annotations", {})}
    kept = {key: value for key, value in annotations.items() if value is not None}
    return {**body, "metadata": {**body["metadata"], "annotations": kept}}


@pytest.mark.parametrize(
    ("annotations", "pause", "expected"),
    [
        (BLOCKED, True, {**OURS, names.STATUS_ANNOTATION: KEPT, names.BLOCK_MOVE: None}),
        ({}, True, {**OURS, names.STATUS_ANNOTATION: KEPT}),
        ({**BLOCKED, names.STATUS_ANNOTATION: "old"}, True,
         {**OURS, names.STATUS_ANNOTATION: KEPT, names.BLOCK_MOVE: None}),
        ({**THEIRS, **BLOCKED}, True, {names.STATUS_ANNOTATION: KEPT, names.BLOCK_MOVE: None}),
        ({**THEIRS, **BLOCKED}, False, {names.STATUS_ANNOTATION: KEPT, names.BLOCK_MOVE: None}),
        ({**OURS, **BLOCKED, names.STATUS_ANNOTATION: "as the Go provider left it"}, True, {names.BLOCK_MOVE: None}),
        (BLOCKED, False, {}),
        ({**OURS, names.STATUS_ANNOTATION: KEPT}, True, {}),
        ({names.DELETE_FOR_MOVE: ""}, True, {}),
    ],
    ids=["claimed", "not blocked", "an older status", "paused by another", "and the Cluster is not", "taken over",
         "nobody paused it", "again", "moved away"],
)  # fmt: skip
def test_pause_status_and_leave_to_move_are_one_patch(
    annotations: dict[str, str], pause: bool, expected: dict[str, Any]
) -> None:
    change = pause_change(whole(annotations), MACHINE, pause=pause)
    assert change.get("metadata", {}).get("annotations", {}) == expected


def test_a_host_without_a_status_stays_blocked_and_one_to_be_restored_keeps_what_it_brought() -> None:
    assert pause_change(whole(BLOCKED, None), MACHINE, pause=True) == {"metadata": {"annotations": OURS}}
    first = pause_change(whole({}, None), MACHINE, pause=True)
    assert first == {"metadata": {"annotations": {**OURS, **BLOCKED}}}, "blocked in the patch that pauses it"
    assert pause_change(whole(THEIRS, None), MACHINE, pause=False) == {"metadata": {"annotations": BLOCKED}}
    later = merged(whole({}), first)
    assert not is_movable(record(later)), "so it is looked at again with its next change"
    change = pause_change(later, MACHINE, pause=True)
    assert change == {"metadata": {"annotations": {names.STATUS_ANNOTATION: KEPT, names.BLOCK_MOVE: None}}}
    brought = {**BLOCKED, names.STATUS_ANNOTATION: KEPT}
    change = pause_change(whole(brought, {}), MACHINE, pause=True)
    assert change == {"metadata": {"annotations": {**OURS, names.BLOCK_MOVE: None}}}


def test_the_pause_takes_an_old_owner_reference_along() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    change = pause_change(whole(BLOCKED, ownerReferences=[OWNED, other]), MACHINE, pause=True)
    assert change["metadata"]["ownerReferences"] == [other]


@pytest.mark.parametrize("pause", [True, False])
def test_whatever_is_there_a_host_ends_blocked_or_movable_and_never_both(pause: bool) -> None:
    """Every mixture of pause, status and block-move, with the Cluster paused and not, after our own writes."""
    for by, blocked, saved, known in product((None, OURS, THEIRS), (True, False), (True, False), (True, False)):
        has = {**(by or {}), **(BLOCKED if blocked else {}), **({names.STATUS_ANNOTATION: KEPT} if saved else {})}
        body = whole(has, STATUS if known else None)
        if not pause:
            body = merged(body, unpause_change(record(body)))
        body = merged(body, pause_change(body, MACHINE, pause=pause))
        body = merged(body, {"metadata": {"annotations": block_change(record(body))}}) if not pause else body
        after = body["metadata"]["annotations"]
        assert (names.PAUSED in after) == (pause or by is THEIRS), has
        if names.PAUSED not in after:
            assert names.BLOCK_MOVE in after, has
        elif known or saved:
            assert is_movable(record(body)), has
        else:
            assert names.BLOCK_MOVE in after, has
        if by is THEIRS:
            assert after[names.PAUSED] == "me", has


CLUSTER = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "namespace": "n"}
CONSUMER = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m"}


@pytest.mark.parametrize(
    ("consumer", "annotations", "expected"),
    [
        (None, BLOCKED, True),
        (CLUSTER, BLOCKED, True),
        (CONSUMER, BLOCKED, False),
        ({**CLUSTER, "apiVersion": "example.org/v1"}, BLOCKED, False),
        (None, {}, False),
    ],
    ids=["free", "kept", "a machine has it", "another party has it", "not blocked"],
)
def test_nobody_waits_for_a_host_that_no_machine_has(
    consumer: dict[str, str] | None, annotations: dict[str, str], expected: bool
) -> None:
    body = {**whole(annotations), "spec": {"consumerRef": consumer} if consumer else {}}
    assert is_blocked_for_nothing(record(body)) is expected

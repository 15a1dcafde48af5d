"""Certificates of webhooks: what is due when, and that at no moment of a rotation a server shows one nobody trusts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION
from hostler.metal.kinds.webhook_objects import conversion_of, webhook_configurations
from hostler.webhooks.certificates import (
    DAYS,
    DUE_DAYS,
    Kept,
    Pair,
    Step,
    bundle_authorities,
    decide_step,
    expiry_of,
    is_usable,
    make_pair,
    promote_next,
    read_kept,
    write_kept,
)
from hostler.webhooks.client_configs import MUTATING, Place, Target, bundle_patch, clients_in, is_injected

DAY = 86_400.0
NOW = 1_800_000_000.0
PLACE = Place("hostler-webhook-service", "h", 9443)
Json = dict[str, Any]


@cache
def pair(ends: float = DAYS, number: int = 0) -> Pair:
    """One that ends so many days after NOW; `number` tells two of them apart."""
    return make_pair((f"w{number}.h.svc",), NOW - 100 * DAY, 100 + ends)


STEPS: list[tuple[str, Kept, bool, Step]] = [
    ("nothing is there", Kept(), False, Step.MAKE),
    ("it has expired", Kept(pair(-1)), False, Step.MAKE),
    ("it is no certificate", Kept(Pair(b"x", b"y", b"z")), False, Step.MAKE),
    ("its key is of another", Kept(replace(pair(), key=pair(number=1).key)), False, Step.MAKE),
    ("it has expired while the next one was prepared", Kept(pair(-1), pair(number=1)), True, Step.MAKE),
    ("it is new", Kept(pair()), True, Step.KEEP),
    ("it ends in a month and a day", Kept(pair(DUE_DAYS + 1)), True, Step.KEEP),
    ("it ends within a month", Kept(pair(DUE_DAYS - 1)), True, Step.PREPARE),
    ("the next one is not trusted yet", Kept(pair(DUE_DAYS - 1), pair(number=1)), False, Step.KEEP),
    ("the next one is trusted", Kept(pair(DUE_DAYS - 1), pair(number=1)), True, Step.PROMOTE),
    ("the next one cannot be used", Kept(pair(DUE_DAYS - 1), Pair(b"x", b"y", b"z")), True, Step.PREPARE),
]


@pytest.mark.parametrize(("kept", "trusted", "step"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_what_is_due(kept: Kept, trusted: bool, step: Step) -> None:
    assert decide_step(kept, trusted=trusted, now=NOW) is step


def test_no_moment_of_a_rotation_shows_a_certificate_that_is_not_trusted() -> None:
    """A replica may still show what the Secret held one version ago, and an API server may read bundles late."""
    kept, before, spread, settled = Kept(pair(DUE_DAYS - 1)), Kept(pair(DUE_DAYS - 1)), b"", ""
    seen: list[Step] = []
    for look in range(12):
        wanted = bundle_authorities(kept, NOW)
        if look:  # the certificate in use is trusted when the rotation begins
            for shown in (kept.current, before.current):
                assert shown is not None
                assert shown.authority in spread
        step = decide_step(kept, trusted=settled == "yes" and spread == wanted, now=NOW)
        seen.append(step)
        if step is Step.PREPARE:
            before, kept = kept, Kept(kept.current, pair(number=look + 2), kept.previous)
        elif step is Step.PROMOTE:
            before, kept = kept, promote_next(kept)
        # One look after the bundles were written they are seen, one later they have settled.
        settled = "yes" if spread == wanted else ""
        spread = wanted if look else bundle_authorities(Kept(pair(DUE_DAYS - 1)), NOW)
    assert [one for one in seen if one is not Step.KEEP] == [Step.PREPARE, Step.PROMOTE]


def test_the_secret_holds_what_was_written() -> None:
    kept = Kept(pair(), pair(number=1), pair(number=2).authority)
    assert read_kept({name: value for name, value in write_kept(kept).items() if value}) == kept
    assert write_kept(promote_next(kept))["next-tls.key"] is None


def test_a_bundle_has_each_ca_once_and_none_that_has_expired() -> None:
    kept = Kept(pair(), pair(number=1), pair(-1).authority)
    assert bundle_authorities(kept, NOW) == pair(number=1).authority + pair().authority
    assert bundle_authorities(replace(kept, previous=pair().authority), NOW).count(b"BEGIN") == 2
    assert bundle_authorities(Kept(Pair(b"x", b"y", b"z")), NOW) == b""


def test_a_new_pair_is_usable_until_its_end() -> None:
    made = make_pair(("w.h.svc", "localhost"), NOW)
    assert is_usable(made, NOW)
    assert not is_usable(made, expiry_of(made.certificate))
    assert expiry_of(made.certificate) - NOW == DAYS * DAY
    assert make_pair(("w.h.svc",), NOW).authority != made.authority


# -- where requests come from


def test_only_what_points_at_us_gets_our_bundle() -> None:
    mutating, _ = webhook_configurations("h")
    mutating["metadata"]["resourceVersion"] = "7"
    mutating["webhooks"][1]["clientConfig"] = {"service": {"namespace": "h", "name": "another"}, "caBundle": "theirs"}
    changes = bundle_patch(Target(MUTATING, "m"), mutating, PLACE, "ours")
    assert changes == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "ours"},
    ]
    mutating["webhooks"][0]["clientConfig"]["caBundle"] = "ours"
    assert bundle_patch(Target(MUTATING, "m"), mutating, PLACE, "ours") == []


def test_the_conversion_of_a_definition_gets_it_too() -> None:
    target = Target(CUSTOM_RESOURCE_DEFINITION, "c")
    thing: Json = {"metadata": {}, "spec": {"conversion": conversion_of("h")}}
    (_, change) = bundle_patch(target, thing, PLACE, "ours")
    assert change["path"] == "/spec/conversion/webhook/clientConfig/caBundle"
    assert bundle_patch(target, {"spec": {"conversion": {"strategy": "None"}}}, PLACE, "ours") == []
    assert bundle_patch(target, {"spec": {"conversion": conversion_of("capm3-system")}}, PLACE, "ours") == []


@pytest.mark.parametrize(
    ("client", "ours"),
    [
        ({"url": "https://127.0.0.1:9443/convert"}, True), ({"url": "https://[::1]:9443/"}, True),
        ({"url": "https://127.0.0.1:9444/convert"}, False), ({"url": "https://10.0.0.1:9443/convert"}, False),
        ({"url": "https://[::1/"}, False), ({"url": "https://127.0.0.1:port/"}, False), ({}, False), (None, False),
        ({"service": {"namespace": "other", "name": "hostler-webhook-service"}}, False),
    ],
)  # fmt: skip
def test_a_port_of_ours_counts_only_on_the_same_machine(client: Any, ours: bool) -> None:
    assert PLACE.is_ours(client) is ours


def test_what_cert_manager_fills_in_is_recognised() -> None:
    assert is_injected({"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "h/c"}}})
    assert not is_injected({"metadata": {}})
    assert [*clients_in(Target(MUTATING, "m"), {"webhooks": None})] == []

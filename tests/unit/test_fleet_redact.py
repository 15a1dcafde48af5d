"""What leaves the house in a bundle: no secret, whatever it is called and wherever it stands; the rest is readable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.fleet.redact import HIDDEN, redact, redact_text

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"token {JWT} sent", f"token {HIDDEN} sent"),
        (f"key:\n{PEM}\nend", f"key:\n{HIDDEN}\nend"),
        ("-----BEGIN CERTIFICATE-----\nMII", HIDDEN),
        ("Authorization: Bearer abcdef123456", f"Authorization: {HIDDEN}"),
        ("https://ada:hunter22@vc.example/sdk", f"https://{HIDDEN}@vc.example/sdk"),
        ("join with abcdef.0123456789abcdef now", f"join with {HIDDEN} now"),
        ("password=hunter22 user=ada", f"password={HIDDEN} user=ada"),
        ("worker-3 was drained at 12:00 by ada", "worker-3 was drained at 12:00 by ada"),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, left: str) -> None:
    assert redact_text(text) == left


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ({"kind": "Secret", "data": {"a": "eA=="}}, {"kind": "Secret", "data": {"a": HIDDEN}}),
        ({"env": [{"name": "X", "value": "1"}]}, {"env": [{"name": "X", "value": HIDDEN}]}),
        ({"bmcPassword": "x", "user": "ada"}, {"bmcPassword": HIDDEN, "user": "ada"}),
        ({"secretName": "s", "secretRef": {"name": "s"}}, {"secretName": "s", "secretRef": {"name": "s"}}),
        ({"metadata": {"managedFields": [1]}}, {"metadata": {"managedFields": None}}),
        ({"a": [{"token": "t"}], "n": 3}, {"a": [{"token": HIDDEN}], "n": 3}),
        (
            {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": HIDDEN}},
        ),
    ],
)
def test_objects(data: Any, left: Any) -> None:
    assert redact(data) == left


_TREES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(_TREES, st.text("abcXYZ123!", min_size=6, max_size=20), st.text(max_size=10), st.text(max_size=10))
def test_a_known_secret_never_gets_out(tree: Any, secret: str, before: str, after: str) -> None:
    said = json.dumps(redact({"x": tree, "y": [f"{before}{secret}{after}"], secret[:3]: secret}, [secret]))
    assert secret not in said
